//! Handlers behind HTTP, with a real endpoint in Python.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use sickbay_core::{Kind, MessageType, Reason, StreamKey};
use sickbay_testkit::ManualClock;
use sickbay_worker::http::HttpHandler;
use sickbay_worker::{Answer, Handler};

use crate::foreign::{
    BUDGET, comes_true, context, deferred, delivery, failure, handle, is_done, script, within,
};
use crate::scene::{SECOND, Scene};

/// The endpoint, ended with the test.
pub(crate) struct Endpoint {
    child: Child,
    out: Option<BufReader<ChildStdout>>,
    port: u16,
    scheme: &'static str,
}

impl Endpoint {
    pub(crate) fn start() -> Self {
        Self::with("http", Command::new("python3").arg(script("endpoint.py")))
    }

    fn with_tls() -> Self {
        let mut command = Command::new("python3");
        Self::with("https", command.arg(script("endpoint.py")).arg("--tls").arg(script("localhost.pem")))
    }

    fn with(scheme: &'static str, command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        Self { child, out: Some(out), port: line.trim().parse().expect("a port"), scheme }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://localhost:{}/{path}", self.scheme, self.port)
    }

    fn handler(&self, path: &str) -> (HttpHandler, ManualClock) {
        let clock = ManualClock::new();
        (HttpHandler::new(&self.url(path), Arc::new(clock.clone())).unwrap(), clock)
    }

    async fn post(&self, path: &str, payload: &str) -> Answer {
        let (handler, clock) = self.handler(path);
        handle(&handler, &clock, payload.to_owned()).await
    }

    /// Waits until it says that it was asked.
    async fn asked(&mut self) {
        let mut out = self.out.take().unwrap();
        let read = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            (line, out)
        });
        let (line, out) = within(read).await.unwrap();
        self.out = Some(out);
        assert_eq!(line, "asked\n");
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn the_status_is_the_answer() {
    let endpoint = Endpoint::start();
    for status in [200, 201, 202, 204] {
        assert!(is_done(&endpoint.post(&format!("silent/{status}"), "x").await), "{status}");
    }
    for (status, kind, reason) in [
        (408, Kind::Transient, Reason::TransportUnavailable),
        (425, Kind::Transient, Reason::DependencyFailure),
        (429, Kind::Transient, Reason::DependencyFailure),
        (500, Kind::Transient, Reason::DependencyFailure),
        (503, Kind::Transient, Reason::TransportUnavailable),
        (400, Kind::Poison, Reason::ValidationFailure),
        (401, Kind::Poison, Reason::HandlerException),
        (404, Kind::Poison, Reason::HandlerException),
        (422, Kind::Poison, Reason::ValidationFailure),
    ] {
        let told = failure(endpoint.post(&format!("status/{status}"), "x").await);
        assert_eq!((told.kind, told.reason), (kind, reason), "{status}");
        assert_eq!(told.error, format!("answered {status}"));
        assert_eq!(told.code.unwrap(), format!("HTTP {status}"));
    }
    let silent = failure(endpoint.post("silent/503", "x").await);
    assert_eq!(silent.error, "the endpoint answered 503 Service Unavailable with an empty body");
}

#[tokio::test]
async fn retry_after_is_honoured() {
    let endpoint = Endpoint::start();
    let told = failure(endpoint.post("later", "120").await);
    assert_eq!((told.kind, told.retry_after), (Kind::Transient, Some(120 * SECOND)));
    assert_eq!(told.error, "slow down");
    let told = failure(endpoint.post("later", "Sun, 06 Nov 1994 08:49:37 GMT").await);
    assert_eq!(told.retry_after, Some(Duration::ZERO));
    assert_eq!(failure(endpoint.post("later", "in a while").await).retry_after, None);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let endpoint = Endpoint::start();
    let told = failure(endpoint.post("moved/new", "x").await);
    assert_eq!((told.kind, told.code.as_deref()), (Kind::Poison, Some("HTTP 302")));
    let place = "the endpoint answered 302 Found: it redirects to \"http://elsewhere.example/new\"";
    assert!(told.error.starts_with(place) && told.error.contains("are not followed"), "{}", told.error);
}

fn seen(answer: Answer) -> serde_json::Value {
    let mut seen: serde_json::Value = serde_json::from_str(&failure(answer).error).unwrap();
    let lower = |(name, value): (&String, &serde_json::Value)| (name.to_lowercase(), value.clone());
    seen["headers"] = seen["headers"].as_object().unwrap().iter().map(lower).collect();
    seen
}

#[tokio::test]
async fn the_metadata_is_in_the_headers() {
    let endpoint = Endpoint::start();
    let (handler, clock) = endpoint.handler("echo/x?live=1");
    let handler = handler.header("Authorization", "Bearer secret").unwrap();
    let mut delivery = delivery(7, "{\"order\": 7}");
    delivery.message.message_type = Some(MessageType::new("OrderPaid").unwrap());
    delivery.message.stream = Some(StreamKey::new("Kundin Müller").unwrap());
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    delivery.message.headers = vec![("traceparent".into(), parent.into()), ("tenant".into(), "acme".into())];
    let ctx = context(&clock, delivery);
    let seen = seen(within(handler.handle(ctx.clone())).await);
    let headers = &seen["headers"];
    for (name, value) in [
        ("x-sickbay-message-id", ctx.id().to_string().as_str()),
        ("x-sickbay-queue", "orders"),
        ("x-sickbay-type", "OrderPaid"),
        ("x-sickbay-stream", "Kundin M%C3%BCller"),
        ("x-sickbay-attempt", "1"),
        ("x-sickbay-token", ctx.token().to_string().as_str()),
        ("x-sickbay-time-budget-ms", "40000"),
        ("x-sickbay-header-tenant", "acme"),
        ("traceparent", parent),
        ("content-type", "application/json"),
        ("authorization", "Bearer secret"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    assert!(headers["user-agent"].as_str().unwrap().starts_with("sickbay/"));
    assert!(headers.get("x-sickbay-key").is_none());
    assert_eq!(seen["path"], "/echo/x?live=1");
}

#[tokio::test]
async fn a_message_cannot_smuggle_headers_in() {
    let endpoint = Endpoint::start();
    let (handler, clock) = endpoint.handler("echo");
    let mut delivery = delivery(1, "x");
    delivery.message.headers = vec![
        ("tenant".into(), "acme\r\nX-Admin: yes\r\n\r\nPOST / HTTP/1.1".into()),
        ("bad\r\nX-Admin: yes\r\nname".into(), "1".into()),
        ("content-type".into(), "text/plain\r\nX-Admin: yes".into()),
        ("traceparent".into(), format!("00-{}\r\nX-Admin: yes", "a".repeat(60))),
        ("authorization".into(), "stolen".into()),
        ("x-sickbay-token".into(), "forged".into()),
        ("huge".into(), "x".repeat(100_000)),
    ];
    let ctx = context(&clock, delivery);
    let seen = seen(within(handler.handle(ctx.clone())).await);
    let headers = seen["headers"].as_object().unwrap();
    assert!(!headers.contains_key("x-admin") && !headers.contains_key("authorization"), "{headers:?}");
    assert!(!headers.contains_key("traceparent"));
    assert_eq!(headers["x-sickbay-header-tenant"], "acme%0D%0AX-Admin: yes%0D%0A%0D%0APOST / HTTP/1.1");
    assert_eq!(headers["x-sickbay-token"], ctx.token().to_string());
    assert_eq!(headers["content-type"], "application/octet-stream");
    assert_eq!(headers["x-sickbay-headers-left-out"], "1");
}

#[tokio::test]
async fn an_endpoint_gets_the_exact_bytes() {
    let endpoint = Endpoint::start();
    let bytes: Vec<u8> = (0..=255).collect();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (handler, clock) = endpoint.handler("echo");
    let echo = seen(handle(&handler, &clock, bytes).await);
    assert_eq!(
        (&echo["body"], &echo["headers"]["content-type"]),
        (&hex.into(), &"application/octet-stream".into())
    );
    let (handler, clock) = endpoint.handler("length");
    assert_eq!(failure(handle(&handler, &clock, vec![0u8; 10_000_000]).await).error, "10000000");
    assert_eq!(failure(handle(&handler, &clock, "").await).error, "0");
}

#[tokio::test]
async fn a_connection_is_used_again_also_after_failures() {
    let endpoint = Endpoint::start();
    let (handler, clock) = endpoint.handler("connection");
    let first = failure(handle(&handler, &clock, "x").await).error;
    for _ in 0..5 {
        assert_eq!(failure(handle(&handler, &clock, "x").await).error, first);
    }
}

#[tokio::test]
async fn the_beginning_of_a_long_answer_is_the_error() {
    let endpoint = Endpoint::start();
    for length in [100_000, 5_000_000] {
        let told = failure(endpoint.post(&format!("long/{length}"), "x").await);
        assert!(told.error.starts_with("beginning xxx"));
        assert_eq!(told.error.len(), 16 * 1024);
    }
}

#[tokio::test]
async fn an_answer_may_say_more() {
    let endpoint = Endpoint::start();
    let answer = endpoint.post("say/200", r#"{"sickbay": {"defer": "10s"}}"#).await;
    assert_eq!(deferred(&answer), Some(10 * SECOND));
    let told = failure(endpoint.post("say/503", r#"{"sickbay": {"retry_after": "5m"}}"#).await);
    assert_eq!(told.retry_after, Some(300 * SECOND));
    let told = failure(endpoint.post("say/200", r#"{"sickbay": {"defer": "soon"}}"#).await);
    assert_eq!(told.kind, Kind::Unknown, "what was perhaps deferred is not done");
    assert!(is_done(&endpoint.post("say/200", r#"{"paid": true}"#).await));
}

#[tokio::test]
async fn no_connection_is_worth_another_try() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let clock = ManualClock::new();
    let handler =
        HttpHandler::new(&format!("http://127.0.0.1:{free}/orders"), Arc::new(clock.clone())).unwrap();
    let told = failure(handle(&handler, &clock, "x").await);
    assert_eq!((told.kind, told.reason), (Kind::Transient, Reason::TransportUnavailable));
    assert_eq!(told.code.as_deref(), Some("ECONNREFUSED"));
    let place = format!("POST http://127.0.0.1:{free}/orders: ");
    assert!(told.error.starts_with(&place) && told.error.contains("refused"), "{}", told.error);
}

#[tokio::test]
async fn a_dropped_connection_is_worth_another_try() {
    let endpoint = Endpoint::start();
    for path in ["drop", "half"] {
        let told = failure(endpoint.post(path, "x").await);
        assert_eq!((told.kind, told.reason), (Kind::Transient, Reason::TransportUnavailable), "{path}");
        assert!(told.error.starts_with("POST http://localhost:"), "{}", told.error);
    }
}

#[tokio::test]
async fn no_answer_in_time_is_worth_another_try() {
    let mut endpoint = Endpoint::start();
    for (path, limit, passes) in [
        ("never", None, BUDGET * 9 / 10),
        ("drip", None, BUDGET * 9 / 10),
        ("never", Some(5 * SECOND), 5 * SECOND),
    ] {
        let (mut handler, clock) = endpoint.handler(path);
        if let Some(limit) = limit {
            handler = handler.time_limit(limit);
        }
        let ctx = context(&clock, delivery(1, "x"));
        let work = tokio::spawn(async move { handler.handle(ctx).await });
        endpoint.asked().await;
        clock.advance(passes);
        let told = failure(within(work).await.unwrap());
        assert_eq!((told.kind, told.reason), (Kind::Transient, Reason::TransportUnavailable));
        assert!(told.error.ends_with(&format!("no answer within {passes:?}")), "{}", told.error);
    }
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_is_dropped() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let clock = ManualClock::new();
    let handler = HttpHandler::new(&format!("http://127.0.0.1:{port}/"), Arc::new(clock.clone())).unwrap();
    let ctx = context(&clock, delivery(1, "x"));
    let work = tokio::spawn(async move { handler.handle(ctx).await });
    let accepted = tokio::task::spawn_blocking(move || {
        let mut stream = listener.accept().unwrap().0;
        let read = stream.read(&mut [0; 4096]).unwrap();
        (stream, read)
    });
    let (mut stream, read) = within(accepted).await.unwrap();
    assert!(read > 0);
    work.abort();
    let rest =
        within(tokio::task::spawn_blocking(move || stream.read_to_end(&mut Vec::new()))).await.unwrap();
    assert!(rest.is_ok(), "the connection is closed");
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused() {
    let endpoint = Endpoint::with_tls();
    let told = failure(endpoint.post("silent/200", "x").await);
    assert_eq!((told.kind, told.reason), (Kind::Transient, Reason::TransportUnavailable));
    assert!(told.error.contains("certificate"), "{}", told.error);
    let (handler, clock) = endpoint.handler("silent/200");
    let authority = std::fs::read(script("authority.pem")).unwrap();
    let handler = handler.root_certificates(&authority).unwrap();
    assert!(is_done(&handle(&handler, &clock, "x").await));
}

#[tokio::test]
async fn a_queue_with_an_endpoint_completes_retries_and_quarantines() {
    let endpoint = Endpoint::start();
    for (path, completed, failed, dead) in
        [("silent/200", 1, 0, 0), ("status/503", 0, 1, 0), ("status/422", 0, 0, 1)]
    {
        let scene = Scene::with_attempts(2).await;
        scene.push("{}").await;
        let url = format!("http://localhost:{}/{path}", endpoint.port);
        let _running = scene.worker(HttpHandler::new(&url, scene.clock()).unwrap()).start();
        comes_true(async || {
            let stats = scene.stats().await;
            (stats.completed, stats.failed, stats.dead) == (completed, failed, dead)
        })
        .await;
    }
}

#[tokio::test]
async fn the_documented_endpoint_does_what_it_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/handlers.md");
    let text = std::fs::read_to_string(path).unwrap();
    let from = text.find("# endpoint.py").expect("the example");
    // A free port, and a word about it, as the tests want it.
    let program = text[from..].split("```").next().unwrap().replace("8080", "0").replace(
        "ThreadingHTTPServer((\"127.0.0.1\", 0), Orders).serve_forever()",
        "server = ThreadingHTTPServer((\"127.0.0.1\", 0), Orders)\nprint(server.server_address[1], flush=True)\nserver.serve_forever()",
    );
    let mut command = Command::new("python3");
    let endpoint = Endpoint::with("http", command.arg("-c").arg(program).stderr(Stdio::null()));
    assert!(is_done(&endpoint.post("orders", "{\"amount\": 7}").await));
    let told = failure(endpoint.post("orders", "{}").await);
    assert_eq!((told.kind, told.error.as_str()), (Kind::Poison, "the order has no amount"));
}
