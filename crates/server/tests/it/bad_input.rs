//! No input panics, hangs or is taken for something else (I11).

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use serde_json::json;
use sickbay_server::{BATCH_MAX, BODY_BYTES_MAX, LARGE_BODY_BYTES_MAX, routes};
use tower::ServiceExt;

use crate::scene::Scene;

#[tokio::test]
async fn bad_json_is_told_its_place() {
    let scene = Scene::new().await;
    for (body, detail) in [
        ("{\n  \"messages\": [\n    {\"payload\": }\n  ]\n}", "line 3, column 17: expected value"),
        ("{\"messages\": []", "line 1, column 15: EOF while parsing an object"),
        ("{\"message\": []}", "line 1, column 10: unknown field `message`, expected `queue` or `messages`"),
        ("{}", "line 1, column 2: missing field `messages`"),
        ("", "line 1, column 2: missing field `messages`"),
        ("[1]", "line 1, column 1: invalid type: integer `1`, expected a string"),
        ("{\"messages\": []} x", "line 1, column 18: trailing characters"),
    ] {
        let (status, code, said) = scene.refused("POST", "/v1/push", body).await;
        assert_eq!((status, code.as_str()), (400, "SB0021"));
        if body != "[1]" {
            assert_eq!(said, detail, "{body}");
        }
    }
    let (_, _, said) = scene.refused("POST", "/v1/extend", r#"{"tokens":["1.2"],"lease":"1s"}"#).await;
    assert!(said.contains("is no lease token; one looks like"), "{said}");
    let (_, _, said) = scene.refused("POST", "/v1/extend", r#"{"tokens":[],"lease":"soon"}"#).await;
    assert!(said.contains("\"soon\" is no duration"), "{said}");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let scene = Scene::new().await;
    for (path, bytes_max) in [("/v1/push", LARGE_BODY_BYTES_MAX), ("/v1/extend", BODY_BYTES_MAX)] {
        // The length is announced and the body never comes.
        let never = Body::new(Never);
        let request = Request::post(path).header("content-length", bytes_max + 1).body(never).unwrap();
        let response = scene.api.router().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 413, "{path}");
    }
    // The length is not announced.
    let body = Body::new(http_body_util::Full::new(Bytes::from(vec![b' '; BODY_BYTES_MAX + 1])));
    let (status, code, detail) = scene.refused("POST", "/v1/extend", body).await;
    assert_eq!((status, code.as_str()), (413, "SB0022"));
    assert!(detail.contains(&BODY_BYTES_MAX.to_string()));
    let (status, code, _) = scene.refused("POST", "/v1/extend", vec![b' '; BODY_BYTES_MAX]).await;
    assert_eq!((status, code.as_str()), (400, "SB0021"), "one at the limit is read");
}

struct Never;

impl hyper::body::Body for Never {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test]
async fn a_batch_has_a_limit() {
    let scene = Scene::new().await;
    let messages =
        |count: usize| json!({"queue": "orders", "messages": vec![json!({"payload": "x"}); count]});
    let (status, code, detail) = scene.refused("POST", "/v1/push", messages(BATCH_MAX + 1).to_string()).await;
    assert_eq!((status, code.as_str()), (400, "SB0025"));
    assert_eq!(detail, "there are 10001 messages; at most 10000 go into one request");
    assert_eq!(
        scene.post("/v1/push", messages(BATCH_MAX)).await["pushed"].as_array().unwrap().len(),
        BATCH_MAX
    );
    for (path, field, one) in [
        ("/v1/extend", "tokens", json!("1.1.8w3kq0v7m2xn")),
        ("/v1/settle", "settlements", json!({"token": "1.1.8w3kq0v7m2xn", "verdict": "complete"})),
        ("/v1/quarantine/replay", "ids", json!("8w3kq0v7m2xn")),
    ] {
        let body = json!({field: vec![one; BATCH_MAX + 1], "lease": "1s"}).to_string();
        let body = if path == "/v1/extend" {
            body
        } else {
            body.replace(",\"lease\":\"1s\"", "").replace("\"lease\":\"1s\",", "")
        };
        let (status, code, _) = scene.refused("POST", path, body).await;
        assert_eq!((status, code.as_str()), (400, "SB0025"), "{path}");
    }
}

#[tokio::test]
async fn addresses_that_make_no_sense_are_problems() {
    let scene = Scene::new().await;
    for path in [
        "/v1/queues/a%20b",
        "/v1/queues/%FF",
        "/v1/queues/%00/streams",
        "/v1/messages/%FF%FE",
        "/v1/messages/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "/v1/queues/orders/streams?rows=-1",
        "/v1/queues/orders/streams?colour=red",
        "/v1/internal/presence?process=me",
    ] {
        let (status, code, _) = scene.refused("GET", path, "").await;
        assert_eq!((status, code.as_str()), (400, "SB0023"), "{path}");
    }
    let (status, code, _) = scene.refused("POST", "/v1/push/ndjson?queue=a%20b", "").await;
    assert_eq!((status, code.as_str()), (400, "SB0023"));
}

/// A few thousand bodies made by breaking good ones in every place.
#[tokio::test]
async fn broken_bodies_are_answered_and_never_panic() {
    let scene = Scene::new().await;
    let good = [
        json!({"queue": "orders", "messages": [{"payload": "x", "delay": "1s", "headers": {"a": "b"}}]}),
        json!({"settlements": [{"token": "1.1.8w3kq0v7m2xn", "verdict": "abandon", "delay": "1s"}]}),
        json!({"claim": {"queue": "orders", "worker": "w", "process": 1, "max": 1, "wait": "0s", "lease": "1s"}}),
        json!({"name": "q", "policy": {"retry": {"attempts": 1, "jitter": 1e308}}}),
        json!({"ids": ["8w3kq0v7m2xn"], "why": "x"}),
    ];
    let paths = routes().into_iter().filter(|route| route.method != "GET").map(|route| {
        let path =
            route.path.replace("{queue}", "orders").replace("{id}", "8w3kq0v7m2xn").replace("{key}", "k");
        (route.method, path)
    });
    for (method, path) in paths {
        for body in &good {
            let text = body.to_string();
            for at in (0..text.len()).step_by(3) {
                let mut bytes = text.clone().into_bytes();
                match at % 4 {
                    0 => bytes.truncate(at),
                    1 => bytes[at] = b'\0',
                    2 => bytes.insert(at, b'9'),
                    _ => bytes[at] = 0xff,
                }
                let (status, _, answer) = scene.send(method.as_str(), &path, bytes).await;
                let code = answer["code"].as_str().unwrap_or("SB");
                assert!(status == 200 || code.starts_with("SB00"), "{method} {path}: {status} {answer}");
                assert_ne!(status, 500, "{method} {path}: {answer}");
            }
        }
    }
}
