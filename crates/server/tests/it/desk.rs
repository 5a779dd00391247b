//! The operator's routes.

use serde_json::{Value, json};
use sickbay_core::port::Desk;
use sickbay_core::{QueueName, QueuePolicy};
use sickbay_server::wire::quarantine::{Bulk, Filter, Query};

use crate::scene::Scene;

#[tokio::test]
async fn a_queue_is_defined_shown_and_listed_with_durations_for_people() {
    let scene = Scene::new().await;
    let policy = json!({"retry": {"attempts": 5, "backoff": {"exponential": "30s"}, "cap": "1h", "jitter": 0.1},
        "overrides": [{"type": "Mail", "reason": "DependencyFailure", "retry": {"attempts": 9}}],
        "breaker": {"failures_per_minute": 10, "cool_down": "90s"}, "lease": "2m", "ordering": "available"});
    let body = json!({"name": "mails/eu", "policy": policy}).to_string();
    let (status, _, answer) = scene.send("PUT", "/v1/queues", body).await;
    assert_eq!((status, answer), (200, json!({})));
    let shown = scene.get("/v1/queues/mails%2Feu").await;
    assert_eq!(shown["name"], "mails/eu");
    assert_eq!(
        shown["policy"]["retry"],
        json!({"attempts": 5, "backoff": {"exponential": "30s"}, "cap": "1h", "jitter": 0.1})
    );
    assert_eq!(shown["policy"]["breaker"]["cool_down"], "1m30s");
    assert_eq!((&shown["policy"]["lease"], &shown["policy"]["key_window"]), (&json!("2m"), &json!("1d")));
    assert_eq!(shown["stats"]["pending"], 0);
    let names: Vec<_> = scene.get("/v1/queues").await["queues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|q| q["name"].clone())
        .collect();
    assert_eq!(names, ["mails/eu", "orders"]);
    let bad =
        json!({"name": "x", "policy": {"classification": [{"regex": "(", "kind": "poison"}]}}).to_string();
    let (status, code, _) = scene.refused("PUT", "/v1/queues", bad).await;
    assert_eq!((status, code.as_str()), (400, "SB0017"));
    let (status, code, detail) = scene.refused("GET", "/v1/queues/ordres", "").await;
    assert_eq!((status, code.as_str()), (404, "SB0001"));
    assert!(detail.contains("\"orders\""), "{detail}");
}

#[tokio::test]
async fn a_queue_or_a_type_is_paused_and_goes_on() {
    let scene = Scene::new().await;
    scene.push(json!({"payload": "x", "type": "Mail"})).await;
    scene.post("/v1/queues/orders/pause", json!({"type": "Mail"})).await;
    assert!(scene.receive(1).await.is_empty());
    let stats = scene.get("/v1/stats").await;
    assert_eq!(stats["queues"][0]["name"], "orders");
    assert_eq!(
        stats["queues"][0]["stats"]["paused_types"],
        json!([{"type": "Mail", "gate": {"gate": "paused"}}])
    );
    scene.post("/v1/queues/orders/resume", json!({"type": "Mail"})).await;
    let (status, _, _) = scene.send("POST", "/v1/queues/orders/pause", "").await;
    assert_eq!(status, 200);
    assert!(scene.receive(1).await.is_empty());
    scene.post("/v1/queues/orders/resume", json!({})).await;
    assert_eq!(scene.receive(1).await.len(), 1);
    let (status, code, _) = scene.refused("POST", "/v1/queues/nowhere/pause", "").await;
    assert_eq!((status, code.as_str()), (404, "SB0001"));
}

#[tokio::test]
async fn a_message_is_found_by_the_beginning_of_its_id() {
    let scene = Scene::new().await;
    let id = scene.push(json!({"payload": "x"})).await;
    for length in [8, 11, 12] {
        assert_eq!(scene.get(&format!("/v1/messages/{}", &id[..length])).await["id"], json!(id));
    }
    let (status, code, _) = scene.refused("GET", "/v1/messages/zzzzzzzz", "").await;
    assert_eq!((status, code.as_str()), (404, "SB0028"));
    let (status, code, detail) = scene.refused("GET", "/v1/messages/not-an-id", "").await;
    assert_eq!((status, code.as_str()), (400, "SB0023"), "{detail}");
    for act in ["dead-letter", "cancel", "hasten", "replay"] {
        for id in ["zzzzzzzz", "zzzzzzzzzzzz"] {
            let (status, code, _) = scene.refused("POST", &format!("/v1/messages/{id}/{act}"), "").await;
            assert_eq!((status, code.as_str()), (404, "SB0028"), "{act} {id}");
        }
    }
}

#[tokio::test]
async fn acts_on_one_message_are_done_or_say_why_not() {
    let scene = Scene::new().await;
    let id = scene.push(json!({"payload": "x", "delay": "1h"})).await;
    let short = &id[..8];
    assert_eq!(
        scene.post(&format!("/v1/messages/{short}/hasten"), json!({})).await,
        json!({"id": id, "short": short})
    );
    let (status, code, detail) = scene.refused("POST", &format!("/v1/messages/{id}/hasten"), "").await;
    assert_eq!((status, code.as_str()), (409, "SB0029"));
    assert_eq!(detail, format!("message {short} does not allow it: it is due already (it is pending)"));
    let (status, code, _) = scene.refused("POST", &format!("/v1/messages/{id}/replay"), "").await;
    assert_eq!((status, code.as_str()), (409, "SB0029"));
    scene.post(&format!("/v1/messages/{id}/dead-letter"), json!({"why": "wrong customer"})).await;
    let view = scene.get(&format!("/v1/messages/{id}")).await;
    assert_eq!((&view["status"], &view["dead"]["reason"]), (&json!("dead"), &json!("Operator")));
    assert_eq!(view["dead"]["error"], "wrong customer");
    scene.post(&format!("/v1/messages/{id}/replay"), json!({"payload": "y"})).await;
    let view = scene.get(&format!("/v1/messages/{id}")).await;
    assert_eq!(
        (&view["status"], &view["payload"], &view["original_payload"]),
        (&json!("pending"), &json!("y"), &json!("x"))
    );
    scene.post(&format!("/v1/messages/{id}/cancel"), json!({})).await;
    let (status, _, _) = scene.refused("GET", &format!("/v1/messages/{id}"), "").await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn the_quarantine_is_filtered_paged_and_counted() {
    let scene = Scene::new().await;
    let ids = scene.dead(5).await;
    scene.advance(60);
    let late = scene.dead(1).await.remove(0);
    let page = scene.get("/v1/quarantine?rows=4&count=true").await;
    assert_eq!((&page["count"], &page["rows"][0]["id"]), (&json!(6), &json!(late)));
    assert_eq!(page["rows"].as_array().unwrap().len(), 4);
    let next = page["next"].as_str().unwrap();
    let page = scene.get(&format!("/v1/quarantine?rows=4&after={next}")).await;
    assert_eq!((page["rows"].as_array().unwrap().len(), &page["next"]), (2, &Value::Null));
    assert_eq!(page["rows"][1]["id"], json!(ids[0]));
    let row = &page["rows"][1];
    let signature = row["signature"].as_str().unwrap();
    for (query, count) in [
        ("queue=orders", 6),
        ("queue=mails", 0),
        ("type=Mail", 0),
        ("reason=HandlerException", 6),
        ("reason=Crash", 0),
        ("kind=poison", 6),
        ("kind=transient", 0),
        ("stream=s", 0),
        ("error=NO%20SUCH", 6),
        ("error=nothing+of+it", 0),
        ("since=2026-01-01T00:00:30Z", 1),
        ("until=2026-01-01T00:00:30Z", 5),
        ("discarded=true", 0),
    ] {
        assert_eq!(scene.get(&format!("/v1/quarantine?{query}&count=true")).await["count"], count, "{query}");
    }
    assert_eq!(scene.get(&format!("/v1/quarantine?signature={signature}&count=true")).await["count"], 6);
    for query in
        ["colour=red", "rows=many", "after=-1", "count=perhaps", "reason=Bad", "since=yesterday", "queue=a b"]
    {
        let query = query.replace(' ', "%20");
        let (status, code, detail) = scene.refused("GET", &format!("/v1/quarantine?{query}"), "").await;
        assert_eq!((status, code.as_str()), (400, "SB0023"), "{detail}");
    }
}

#[tokio::test]
async fn bulk_acts_go_through_all_pages() {
    let scene = Scene::new().await;
    scene.dead(2500).await;
    let filter = Filter { queue: Some(QueueName::new("orders").unwrap()), ..Filter::default() };
    let bulk = Bulk { filter: Some(filter.clone()), why: Some("of no use".into()), ..Bulk::default() };
    let answer = scene.client.discard_many(&bulk).await.unwrap();
    assert_eq!((answer.done, answer.refused, answer.not_found), (2500, 0, 0));
    let count = async |discarded| {
        let query = Query { count: true, ..Query::new(Filter { discarded, ..filter.clone() }) };
        scene.client.quarantine(&query).await.unwrap().count
    };
    assert_eq!((count(false).await, count(true).await), (Some(0), Some(2500)));
    let bulk = Bulk { filter: Some(filter.clone()), ..Bulk::default() };
    assert_eq!(scene.client.restore_many(&bulk).await.unwrap().done, 2500);
    assert_eq!(scene.client.replay_many(&bulk).await.unwrap().done, 2500);
    assert_eq!(scene.get("/v1/queues/orders").await["stats"]["pending"], 2500);
}

#[tokio::test]
async fn everything_is_concerned_only_if_that_is_said() {
    let scene = Scene::new().await;
    scene.dead(3).await;
    for verb in ["replay", "discard", "restore"] {
        let bodies = [
            json!({}),
            json!({"filter": {}}),
            json!({"filter": {"discarded": true}}),
            json!({"filter": {"error": ""}}),
        ];
        for body in bodies {
            let (status, code, _) =
                scene.refused("POST", &format!("/v1/quarantine/{verb}"), body.to_string()).await;
            assert_eq!((status, code.as_str()), (400, "SB0027"), "{verb} {body}");
        }
    }
    assert_eq!(scene.post("/v1/quarantine/replay", json!({"all": true})).await["done"], 3);
}

#[tokio::test]
async fn bulk_acts_by_id_say_what_was_left_out() {
    let scene = Scene::new().await;
    let dead = scene.dead(2).await;
    let live = scene.push(json!({"payload": "x"})).await;
    let ids = json!([&dead[0][..8], dead[1], live, "zzzzzzzz"]);
    let answer = scene.post("/v1/quarantine/discard", json!({"ids": ids, "why": "w"})).await;
    assert_eq!(
        (&answer["done"], &answer["refused"], &answer["not_found"]),
        (&json!(2), &json!(1), &json!(1))
    );
    assert_eq!(answer["left_out"].as_array().unwrap().len(), 2);
    assert_eq!(answer["left_out"][1], json!({"id": live, "why": "it is not in quarantine (it is pending)"}));
    for (verb, body) in [
        ("replay", json!({"ids": [], "filter": {}})),
        ("replay", json!({"ids": [], "why": "x"})),
        ("discard", json!({"ids": [], "queue": "orders"})),
        ("restore", json!({"ids": [], "why": "x"})),
        ("restore", json!({"id": []})),
    ] {
        let (status, code, _) =
            scene.refused("POST", &format!("/v1/quarantine/{verb}"), body.to_string()).await;
        assert_eq!((status, code.as_str()), (400, "SB0021"), "{verb} {body}");
    }
    let (status, code, _) = scene.refused("POST", "/v1/quarantine/replay", r#"{"ids":["!"]}"#).await;
    assert_eq!((status, code.as_str()), (400, "SB0023"));
}

#[tokio::test]
async fn replays_can_go_to_another_queue() {
    let scene = Scene::new().await;
    let other = QueueName::new("repaired").unwrap();
    scene.store.define_queue(&other, QueuePolicy::default()).await.unwrap();
    let id = scene.dead(1).await.remove(0);
    let body = json!({"ids": [id], "queue": "repaired"});
    assert_eq!(scene.post("/v1/quarantine/replay", body).await["done"], 1);
    assert_eq!(scene.get(&format!("/v1/messages/{id}")).await["queue"], "repaired");
}

#[tokio::test]
async fn a_blocked_stream_is_listed_and_released() {
    let scene = Scene::new().await;
    let key = "customer/7 №";
    let path = "/v1/queues/orders/streams/customer%2F7%20%E2%84%96/release";
    let head = scene.push(json!({"payload": "a", "stream": key})).await;
    scene.push(json!({"payload": "b", "stream": key})).await;
    assert_eq!(scene.post(path, json!({})).await, json!({"released": false}));
    scene.post(&format!("/v1/messages/{head}/dead-letter"), json!({"why": "w"})).await;
    let streams = scene.get("/v1/queues/orders/streams?rows=5").await;
    let stream = &streams["streams"][0];
    assert_eq!((&stream["key"], &stream["state"]), (&json!(key), &json!("held")));
    assert!(scene.receive(5).await.is_empty());
    assert_eq!(scene.post(path, json!({})).await, json!({"released": true}));
    assert_eq!(scene.receive(5).await.len(), 1);
    let (status, code, _) = scene.refused("GET", "/v1/queues/orders/streams?rows=x", "").await;
    assert_eq!((status, code.as_str()), (400, "SB0023"));
}

#[tokio::test]
async fn a_healthy_owner_says_so_and_a_closed_store_does_not() {
    let scene = Scene::new().await;
    let health = scene.get("/v1/health").await;
    assert_eq!((&health["status"], &health["queues"]), (&json!("ok"), &json!(1)));
    scene.store.close();
    let (status, code, _) = scene.refused("GET", "/v1/health", "").await;
    assert_eq!((status, code.as_str()), (500, "SB0013"));
}
