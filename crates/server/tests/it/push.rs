//! Messages come in.

use serde_json::{Value, json};

use crate::scene::Scene;

#[tokio::test]
async fn a_batch_is_answered_in_its_order_and_says_what_was_known_already() {
    let scene = Scene::new().await;
    let messages = json!([
        {"payload": "a", "key": "k"},
        {"payload": "b", "key": "k"},
        {"payload_base64": "AAH/", "type": "Mail", "stream": "s", "priority": 9, "delay": "1h", "deadline": "1d",
         "headers": {"tenant": "acme"}, "stages": ["Stored"]},
    ]);
    let answer = scene.post("/v1/push", json!({"queue": "orders", "messages": messages})).await;
    let pushed = answer["pushed"].as_array().unwrap();
    assert_eq!(pushed[0]["id"], pushed[1]["id"]);
    let duplicates: Vec<_> = pushed.iter().map(|one| one["duplicate"].as_bool().unwrap()).collect();
    assert_eq!(duplicates, [false, true, false]);
    let id = pushed[2]["id"].as_str().unwrap();
    assert_eq!(pushed[2]["short"], id[..8]);
    let view = scene.get(&format!("/v1/messages/{id}")).await;
    assert_eq!(view["status"], "scheduled");
    assert_eq!(view["payload_base64"], "AAH/");
    assert_eq!(view["payload"], Value::Null);
    assert_eq!((&view["type"], &view["stream"], &view["priority"]), (&json!("Mail"), &json!("s"), &json!(9)));
    assert_eq!(view["headers"], json!({"tenant": "acme"}));
    assert_eq!(view["stages"], json!(["Stored"]));
    assert_eq!(view["pushed_at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(view["due_at"], "2026-01-01T01:00:00.000Z");
    assert_eq!(view["deadline_at"], "2026-01-02T00:00:00.000Z");
}

#[tokio::test]
async fn one_bad_message_keeps_the_whole_batch_out() {
    let scene = Scene::new().await;
    for bad in [
        json!({"payload": "x", "payload_base64": "eA=="}),
        json!({}),
        json!({"payload_base64": "?"}),
        json!({"payload": "x", "queue": "nowhere"}),
        json!({"payload": "x", "queue": "no where"}),
        json!({"payload": "x", "priority": 10}),
        json!({"payload": "x", "delay": "30"}),
        json!({"payload": "x", "stages": ["Shipped"]}),
    ] {
        let body = json!({"queue": "orders", "messages": [{"payload": "good"}, bad]}).to_string();
        let (status, code, detail) = scene.refused("POST", "/v1/push", body).await;
        let expected = if detail.contains("nowhere") { (404, "SB0001") } else { (400, "SB0021") };
        assert_eq!((status, code.as_str()), expected, "{detail}");
    }
    let (_, _, detail) = scene.refused("POST", "/v1/push", r#"{"messages":[{"payload":"x"}]}"#).await;
    assert!(detail.starts_with("message 1: the message names no \"queue\""), "{detail}");
    assert_eq!(scene.get("/v1/queues/orders").await["stats"]["pushed"], 0);
}

#[tokio::test]
async fn lines_are_stored_and_counted() {
    let scene = Scene::new().await;
    let lines = "{\"payload\":\"a\",\"key\":\"k\"}\n\n  \r\n{\"payload\":\"b\",\"key\":\"k\"}\r\n{\"payload\":\"last\"}";
    let (status, _, answer) = scene.send("POST", "/v1/push/ndjson?queue=orders", lines).await;
    assert_eq!(status, 200);
    assert_eq!(answer, json!({"lines_stored": 5, "new": 2, "duplicates": 1}));
    let (_, _, answer) = scene.send("POST", "/v1/push/ndjson?queue=orders", "").await;
    assert_eq!(answer, json!({"lines_stored": 0, "new": 0, "duplicates": 0}));
}

fn numbered(count: usize) -> Vec<String> {
    (1..=count).map(|n| json!({"queue": "orders", "payload": n.to_string()}).to_string()).collect()
}

#[tokio::test]
async fn everything_before_a_bad_line_is_stored_and_nothing_after_it() {
    for (bad, why) in [
        ("{\"queue\":\"orders\"", "EOF while parsing"),
        ("{\"queue\":\"nowhere\",\"payload\":\"x\"}", "there is no queue \"nowhere\""),
        ("not json", "this is no JSON object"),
        ("{\"queue\":\"orders\",\"payload\":\"x\",\"colour\":1}", "unknown field `colour`"),
        ("\u{0}\u{1}", "this is no JSON object"),
    ] {
        for place in [1, 2, 1000, 1001, 2345] {
            let scene = Scene::new().await;
            let mut lines = numbered(3000);
            lines[place - 1] = bad.to_owned();
            let (status, _, problem) = scene.send("POST", "/v1/push/ndjson", lines.join("\n")).await;
            assert_eq!(status, if why.starts_with("there is no queue") { 404 } else { 400 });
            assert_eq!(problem["code"], "SB0026");
            assert_eq!(problem["line"], place);
            assert_eq!(problem["lines_stored"], place - 1);
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.starts_with(&format!("line {place}: ")) && detail.contains(why), "{detail}");
            assert_eq!(scene.get("/v1/queues/orders").await["stats"]["pushed"], place - 1);
        }
    }
}

#[tokio::test]
async fn what_was_left_out_can_be_sent_again_from_where_it_stopped() {
    let scene = Scene::new().await;
    let mut lines = numbered(1500);
    lines[1200] = "oops".to_owned();
    let (_, _, problem) = scene.send("POST", "/v1/push/ndjson", lines.join("\n")).await;
    let stored = problem["lines_stored"].as_u64().unwrap() as usize;
    let rest = numbered(1500)[stored..].join("\n");
    let (_, _, answer) = scene.send("POST", "/v1/push/ndjson", rest).await;
    assert_eq!(answer["new"], 300);
    assert_eq!(scene.get("/v1/queues/orders").await["stats"]["pushed"], 1500);
}
