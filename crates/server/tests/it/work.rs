//! Workers in other languages: receive, settle, extend.

use std::sync::Arc;

use serde_json::json;
use sickbay_core::Clock;

use crate::scene::{Scene, orders};

#[tokio::test]
async fn a_delivery_says_everything_and_completing_it_ends_it() {
    let scene = Scene::new().await;
    let id =
        scene.push(json!({"payload": "{\"order\":7}", "type": "OrderPaid", "headers": {"a": "b"}})).await;
    let delivery = scene.receive(1).await.remove(0);
    assert_eq!((&delivery["id"], &delivery["attempt"]), (&json!(id), &json!(1)));
    assert_eq!((&delivery["payload"], &delivery["type"]), (&json!("{\"order\":7}"), &json!("OrderPaid")));
    assert_eq!(delivery["expires_at"], "2026-01-01T00:00:30.000Z");
    let settled = scene.settle(json!({"token": delivery["token"], "verdict": "complete"})).await;
    assert_eq!(settled["outcome"], "completed");
    let again = scene.settle(json!({"token": delivery["token"], "verdict": "complete"})).await;
    assert_eq!(again["outcome"], "lease_lost");
    assert_eq!(scene.get("/v1/queues/orders").await["stats"]["completed"], 1);
}

#[tokio::test]
async fn poison_comes_at_exactly_the_limit() {
    for (limit, expected) in [(None, 3), (Some(0), 1), (Some(1), 1), (Some(2), 2), (Some(5), 5)] {
        let scene = Scene::new().await;
        scene.push(json!({"payload": "x"})).await;
        for count in 1..=expected {
            let wish = json!({"max": 2, "limit": limit});
            let received = scene.post("/v1/queues/orders/receive", wish).await;
            let token = &received["deliveries"][0]["token"];
            let said =
                json!({"token": token, "verdict": "abandon", "error": "connection refused", "limit": limit});
            let settled = scene.settle(said).await;
            assert_eq!(settled["count"], count);
            assert_eq!(settled["limit"], expected, "the limit in force");
            if count < expected {
                assert_eq!((&settled["outcome"], &settled["after"]), (&json!("released"), &json!("10s")));
                assert!(scene.receive(1).await.is_empty(), "it waits for its time");
                scene.advance(10);
            } else {
                assert_eq!(settled["outcome"], "poisoned");
                assert_eq!(settled["set_aside"], "MaxDeliveryCountExceeded");
            }
        }
    }
}

#[tokio::test]
async fn an_abandon_can_be_uncounted_delayed_or_poison_at_once() {
    let scene = Scene::new().await;
    scene.push(json!({"payload": "x"})).await;
    let said = json!({"token": scene.token().await, "verdict": "abandon", "count": false, "delay": "5s"});
    let settled = scene.settle(said).await;
    assert_eq!((&settled["outcome"], &settled["count"]), (&json!("released"), &json!(0)));
    assert!(scene.receive(1).await.is_empty());
    scene.advance(5);
    let said = json!({"token": scene.token().await, "verdict": "abandon", "error": "busy", "delay": "2m"});
    let settled = scene.settle(said).await;
    assert_eq!((&settled["count"], &settled["after"]), (&json!(1), &json!("2m")));
    scene.advance(119);
    assert!(scene.receive(1).await.is_empty());
    scene.advance(1);
    let said =
        json!({"token": scene.token().await, "verdict": "abandon", "poison": true, "error": "bad order"});
    let settled = scene.settle(said).await;
    assert_eq!((&settled["outcome"], &settled["count"]), (&json!("poisoned"), &json!(2)));
    assert_eq!((&settled["set_aside"], &settled["kind"]), (&json!("NonRetryableError"), &json!("poison")));
}

#[tokio::test]
async fn errors_are_classified_with_the_rules_in_force_now() {
    let scene = Scene::new().await;
    scene.push(json!({"payload": "x", "type": "Mail"})).await;
    let token = scene.token().await;
    let rules = json!([{"text": "no such customer", "kind": "poison", "set_reason": "ValidationFailure"}]);
    let queue = json!({"name": "orders", "policy": {"retry": {"attempts": 9}, "classification": rules}});
    let (status, _, answer) = scene.send("PUT", "/v1/queues", queue.to_string()).await;
    assert_eq!(status, 200, "{answer}");
    let said = json!({"token": token, "verdict": "abandon", "error": "No such customer: 17"});
    let settled = scene.settle(said).await;
    assert_eq!((&settled["outcome"], &settled["reason"]), (&json!("poisoned"), &json!("ValidationFailure")));
}

#[tokio::test]
async fn exit_codes_and_statuses_are_understood() {
    let scene = Scene::new().await;
    for (said, outcome) in [
        (json!({"exit_code": 65}), "poisoned"),
        (json!({"exit_code": 75}), "released"),
        (json!({"http_status": 422}), "poisoned"),
        (json!({"http_status": 503}), "released"),
    ] {
        scene.push(json!({"payload": "x"})).await;
        let mut settlement = json!({"token": scene.token().await, "verdict": "abandon"});
        settlement.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        assert_eq!(scene.settle(settlement).await["outcome"], outcome, "{said}");
    }
}

#[tokio::test]
async fn of_many_abandons_of_one_delivery_one_wins() {
    let scene = Scene::new().await;
    let id = scene.push(json!({"payload": "x"})).await;
    let token = scene.token().await;
    let one = json!({"token": token, "verdict": "abandon", "error": "no"});
    let body = json!({"settlements": vec![one.clone(); 5]});
    let together = scene.post("/v1/settle", body).await;
    let outcomes: Vec<_> =
        together["settled"].as_array().unwrap().iter().map(|one| one["outcome"].clone()).collect();
    assert_eq!(outcomes, ["released", "lease_lost", "lease_lost", "lease_lost", "lease_lost"]);
    assert_eq!(scene.settle(one).await["outcome"], "lease_lost");
    assert_eq!(scene.get(&format!("/v1/messages/{id}")).await["counters"]["failures"], 1);
}

#[tokio::test]
async fn releases_are_not_counted_and_dead_letters_keep_their_description() {
    let scene = Scene::new().await;
    let id = scene.push(json!({"payload": "x"})).await;
    let settled = scene.settle(json!({"token": scene.token().await, "verdict": "release"})).await;
    assert_eq!(settled["outcome"], "released");
    let said = json!({"token": scene.token().await, "verdict": "dead_letter", "reason": "ValidationFailure",
        "error": "amount is negative", "code": "NEGATIVE", "ran": "3s", "output": "tail"});
    assert_eq!(scene.settle(said).await["outcome"], "poisoned");
    let view = scene.get(&format!("/v1/messages/{id}")).await;
    assert_eq!((&view["status"], &view["counters"]["releases"]), (&json!("dead"), &json!(1)));
    assert_eq!(view["dead"]["reason"], "ValidationFailure");
    let last = view["history"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["failure"]["error"], &last["failure"]["code"]),
        (&json!("amount is negative"), &json!("NEGATIVE"))
    );
    assert_eq!((&last["ran"], &last["output"]), (&json!("3s"), &json!("tail")));
}

#[tokio::test]
async fn a_field_that_means_nothing_for_a_verdict_is_refused() {
    let scene = Scene::new().await;
    scene.push(json!({"payload": "x"})).await;
    let token = scene.token().await;
    for (verdict, field, value) in [
        ("complete", "error", json!("x")),
        ("complete", "delay", json!("1s")),
        ("release", "limit", json!(3)),
        ("dead_letter", "count", json!(false)),
    ] {
        let body = json!({"settlements": [{"token": token, "verdict": verdict, field: value}]}).to_string();
        let (status, code, detail) = scene.refused("POST", "/v1/settle", body).await;
        assert_eq!((status, code.as_str()), (400, "SB0021"));
        assert_eq!(detail, format!("settlement 1: {field:?} means nothing for this verdict"));
    }
    assert_eq!(scene.settle(json!({"token": token, "verdict": "complete"})).await["outcome"], "completed");
}

#[tokio::test]
async fn a_lease_can_be_extended_and_a_lost_one_is_named() {
    let scene = Scene::new().await;
    scene.push(json!({"payload": "x"})).await;
    let token = scene.token().await;
    let strange = "9.9.8w3kq0v7m2xn";
    let extended = scene.post("/v1/extend", json!({"tokens": [token, strange], "lease": "5m"})).await;
    assert_eq!(extended["lost"], json!([strange]));
    scene.advance(299);
    assert_eq!(scene.settle(json!({"token": token, "verdict": "complete"})).await["outcome"], "completed");
}

#[tokio::test]
async fn the_gate_keeps_back_what_no_worker_should_see() {
    let scene = Scene::new().await;
    let late = scene.push(json!({"payload": "late", "deadline": "1s"})).await;
    scene.advance(2);
    assert!(scene.receive(5).await.is_empty());
    let view = scene.get(&format!("/v1/messages/{late}")).await;
    assert_eq!((&view["status"], &view["dead"]["set_aside"]), (&json!("dead"), &json!("DeadlinePassed")));

    let often = scene.push(json!({"payload": "often"})).await;
    for _ in 0..3 {
        assert_eq!(scene.receive(1).await.len(), 1);
        scene.advance(30);
    }
    let good = scene.push(json!({"payload": "good"})).await;
    let received = scene.receive(1).await;
    assert_eq!(received[0]["id"], json!(good), "it gets the next one instead");
    let view = scene.get(&format!("/v1/messages/{often}")).await;
    assert_eq!((&view["status"], &view["dead"]["set_aside"]), (&json!("dead"), &json!("PoisonMessage")));
}

#[tokio::test]
async fn receiving_waits_for_what_comes() {
    let scene = Arc::new(Scene::new().await);
    let waiting = scene.post("/v1/queues/orders/receive", json!({"wait": "1h", "worker": "ruby/1"}));
    let pushing = async {
        tokio::task::yield_now().await;
        scene.push(json!({"payload": "x"})).await
    };
    let (received, id) = tokio::join!(waiting, pushing);
    assert_eq!(received["deliveries"][0]["id"], json!(id));
    let view = scene.get(&format!("/v1/messages/{id}")).await;
    assert_eq!((&view["status"], &view["worker"]), (&json!("active"), &json!("ruby/1")));
}

#[tokio::test]
async fn a_receive_nobody_waits_for_any_more_takes_nothing() {
    let scene = Scene::new().await;
    let gone = tokio::select! {
        biased;
        _ = scene.post("/v1/queues/orders/receive", json!({"wait": "1h"})) => false,
        () = std::future::ready(()) => true,
    };
    assert!(gone);
    scene.push(json!({"payload": "x"})).await;
    let delivery = scene.receive(1).await.remove(0);
    assert_eq!(delivery["counters"]["deliveries"], 1);
}

#[tokio::test]
async fn a_receive_is_answered_at_the_end_of_its_wait() {
    let scene = Scene::new().await;
    let before = scene.clock.now();
    let (queue, receive) = (orders(), serde_json::from_value(json!({"wait": "7s"})).unwrap());
    let waiting = scene.client.receive(&queue, &receive);
    let time = async {
        tokio::task::yield_now().await;
        scene.advance(7);
    };
    let (received, ()) = tokio::join!(waiting, time);
    assert!(received.unwrap().deliveries.is_empty());
    assert_eq!(scene.clock.now().since(before).as_secs(), 7);
    let (status, code, _) = scene.refused("POST", "/v1/queues/orders/receive", r#"{"lease":"0s"}"#).await;
    assert_eq!((status, code.as_str()), (400, "SB0021"));
    let (status, code, _) = scene.refused("POST", "/v1/queues/nowhere/receive", "").await;
    assert_eq!((status, code.as_str()), (404, "SB0001"));
}
