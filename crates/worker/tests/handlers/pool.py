"""A program for the pool's tests: what it does with a message, the payload says.

FIFO, if it is set, gets a line when a message makes the program hang.
"""

import base64
import json
import os
import signal
import sys


def say(**answer):
    print(json.dumps(answer), flush=True)


def hang():
    if "FIFO" in os.environ:
        with open(os.environ["FIFO"], "w") as fifo:
            print("hanging", file=fifo, flush=True)
            signal.pause()
    signal.pause()


kept = []
for line in sys.stdin:
    message = json.loads(line)
    name = message["id"]
    payload = message.get("payload")
    if payload is None:
        payload = base64.b64decode(message["payload_base64"])
        say(id=name, error=payload.hex())
    elif payload == "die":
        print("it hurts", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    elif payload == "hang":
        print("waiting for the bank", file=sys.stderr, flush=True)
        hang()
    elif payload.startswith("exit "):
        print("giving up", file=sys.stderr, flush=True)
        sys.exit(int(payload.split()[1]))
    elif payload.startswith("say "):
        # The rest is an answer without its id.
        say(id=name, **json.loads(payload[4:]))
    elif payload.startswith("write "):
        print(payload[6:], flush=True)
    elif payload.startswith("keep "):
        # Answers in the opposite order once so many have come.
        kept.append(name)
        if len(kept) == int(payload.split()[1]):
            for name in reversed(kept):
                say(id=name, error=f"answer for {name}", kind="poison")
    elif payload == "show":
        say(id=name, error=line)
    elif payload == "who":
        say(id=name, error=str(os.getpid()))
    else:
        say(id=name, ok=True)
