//! Handlers of every shape.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use sickbay_core::gate::Invalid;
use sickbay_core::{
    Counters, Delivery, Kind, Lease, LeaseToken, Message, MessageId, Priority, QueueName, Reason, Stages,
    Timestamp, Verdict,
};
use sickbay_testkit::ManualClock;
use sickbay_worker::{Answer, Context, Handler, blocking, typed};

use crate::scene::{Notes, SECOND, Scene};

#[derive(Deserialize)]
struct OrderPaid {
    order: u64,
}

#[tokio::test]
async fn a_typed_handler_gets_its_body() {
    let scene = Scene::with_attempts(1).await;
    scene.push(r#"{"order": 7}"#).await;
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = typed(move |body: OrderPaid, ctx: Context| {
        seen.add(format!("{} {}", body.order, ctx.attempt()));
        async { Ok::<(), std::io::Error>(()) }
    });
    let _running = scene.worker(handler).start();
    scene.completed(1).await;
    assert_eq!(notes.all(), ["7 1"]);
}

#[tokio::test]
async fn a_body_that_does_not_deserialize_is_poison_and_the_handler_does_not_run() {
    let scene = Scene::with_attempts(5).await;
    scene.push("{\n\"order\": \"seven\"}").await;
    scene.push(&"[".repeat(1_000_000)).await;
    let handler = typed(async |_: OrderPaid, _: Context| -> () { panic!("it must not run") });
    let running = scene.worker(handler).start();
    scene.quarantined(2).await;
    let dead = scene.dead().await;
    assert!(dead.iter().all(|letter| letter.reason == Reason::SerializationError));
    assert!(dead.iter().all(|letter| letter.kind == Kind::Poison && letter.counters.failures == 1));
    assert!(dead.iter().any(|letter| letter.error.contains("at line 2 column 16")), "{dead:?}");
    assert_eq!(running.stats().panics, 0);
}

#[tokio::test]
async fn a_deeply_nested_body_is_poison_and_overflows_nothing() {
    let scene = Scene::with_attempts(5).await;
    scene.push(&"[".repeat(1_000_000)).await;
    let handler = typed(async |_: serde_json::Value, _: Context| ());
    let _running = scene.worker(handler).start();
    scene.quarantined(1).await;
    assert!(scene.dead().await[0].error.contains("recursion limit"));
}

#[tokio::test]
async fn what_a_validator_refuses_never_reaches_the_handler() {
    let scene = Scene::with_attempts(5).await;
    scene.push("-5").await;
    scene.push("5").await;
    let not_negative = |message: &Message| match message.payload.starts_with(b"-") {
        true => Err(Invalid::new("amount_non_positive").at("/amount")),
        false => Ok(()),
    };
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = move |ctx: Context| {
        seen.add(String::from_utf8_lossy(ctx.payload()));
        async {}
    };
    let _running = scene.worker(handler).validator(not_negative).start();
    scene.completed(1).await;
    scene.quarantined(1).await;
    assert_eq!(notes.all(), ["5"]);
    let dead = scene.dead().await;
    assert_eq!((dead[0].reason, dead[0].kind), (Reason::ValidationFailure, Kind::Poison));
}

#[tokio::test]
async fn a_validator_that_panics_fails_its_message_only() {
    let scene = Scene::with_attempts(1).await;
    scene.push("bad").await;
    scene.push("good").await;
    let validator = |message: &Message| {
        assert!(message.payload != "bad", "bug in the validator");
        Ok(())
    };
    let _running = scene.worker(async |_: Context| ()).validator(validator).start();
    scene.completed(1).await;
    scene.quarantined(1).await;
    assert!(scene.dead().await[0].error.starts_with("the validator panicked: bug in the validator"));
}

#[tokio::test]
async fn a_blocking_handler_runs_on_a_thread_of_its_own() {
    let scene = Scene::with_attempts(1).await;
    scene.push("good").await;
    scene.push("bad").await;
    let own = std::thread::current().id();
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = blocking(move |ctx: Context| {
        assert!(ctx.payload() != "bad", "on another thread");
        seen.add((std::thread::current().id() != own).to_string());
        Verdict::done()
    });
    let running = scene.worker(handler).start();
    scene.quarantined(1).await;
    scene.completed(1).await;
    assert_eq!(notes.all(), ["true"]);
    assert!(scene.dead().await[0].error.starts_with("panicked: on another thread"));
    assert_eq!(running.stats().panics, 1);
}

#[tokio::test]
async fn a_handler_can_be_tried_without_a_worker() {
    let clock = ManualClock::new();
    let id = MessageId::from_number(1).unwrap();
    let message = Message {
        id,
        queue: QueueName::new("orders").unwrap(),
        message_type: None,
        stream: None,
        key: None,
        priority: Priority::default(),
        pushed_at: Timestamp::default(),
        deadline_at: None,
        headers: vec![("tenant".to_owned(), "acme".to_owned())],
        payload: "x".into(),
    };
    let token = LeaseToken { epoch: 1, claim: 1, message: id };
    let delivery = Delivery {
        message,
        lease: Lease { token, granted_at: Timestamp::default(), expires_at: Timestamp::NEVER },
        counters: Counters { deliveries: 1, ..Counters::default() },
        stages: Stages::NONE,
        cause: None,
        suspect: false,
    };
    let ctx = Context::new(delivery, Arc::new(clock.clone()), 60 * SECOND);
    clock.advance(50 * SECOND);
    assert_eq!((ctx.remaining(), ctx.token(), ctx.id()), (Duration::from_secs(10), token, id));
    let handler = async |ctx: Context| match ctx.header("tenant") {
        Some("acme") => Err("no such tenant"),
        _ => Ok(()),
    };
    let answer = handler.handle(ctx).await;
    assert!(matches!(answer, Answer::Raw(raw) if raw.text == "no such tenant"));
}
