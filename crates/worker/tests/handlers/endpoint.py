"""An endpoint for tests: what it answers, the path says. Prints its port. With --tls FILE it speaks TLS."""

import json
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("content-length", "0"))
        body = self.rfile.read(length)
        what, _, rest = self.path.strip("/").partition("/")
        getattr(self, what)(rest, body)

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def status(self, rest, body):
        self.answer(int(rest), b"answered " + rest.encode())

    def silent(self, rest, body):
        self.answer(int(rest))

    def later(self, rest, body):
        """Retry-After as the message says."""
        self.answer(429, b"slow down", retry_after=body.decode())

    def moved(self, rest, body):
        self.answer(302, location="http://elsewhere.example/" + rest)

    def echo(self, rest, body):
        seen = {"headers": dict(self.headers.items()), "body": body.hex(), "path": self.path}
        self.answer(400, json.dumps(seen).encode())

    def length(self, rest, body):
        self.answer(400, str(len(body)).encode())

    def say(self, rest, body):
        """The message is the answer."""
        self.answer(int(rest), body, content_type="application/json")

    def connection(self, rest, body):
        self.answer(400, str(self.client_address[1]).encode())

    def long(self, rest, body):
        self.answer(500, b"beginning " + b"x" * int(rest))

    def drop(self, rest, body):
        self.close_connection = True

    def half(self, rest, body):
        """Promises more than it sends."""
        self.wfile.write(b"HTTP/1.1 500 no\r\ncontent-length: 1000\r\n\r\nhalf")
        self.close_connection = True

    def never(self, rest, body):
        print("asked", flush=True)
        threading.Event().wait()

    def drip(self, rest, body):
        self.wfile.write(b"HTTP/1.1 500 no\r\ncontent-length: 1000\r\n\r\nhalf")
        print("asked", flush=True)
        threading.Event().wait()

    def attempt(self, rest, body):
        """Well in the attempt that the path names, and in no other."""
        self.answer(200 if self.headers["x-sickbay-attempt"] == rest else 503)

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
server.daemon_threads = True
if sys.argv[1:2] == ["--tls"]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
