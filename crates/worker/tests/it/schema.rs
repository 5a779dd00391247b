//! JSON Schema before the handler.

use sickbay_core::gate::Validator;
use sickbay_core::{Kind, MessageType, Reason};
use sickbay_worker::{Context, SchemaValidator};

use crate::scene::{Notes, Scene};

const ORDER: &str = r#"{
    "type": "object",
    "required": ["order", "items"],
    "properties": {
        "order": {"type": "integer"},
        "items": {"type": "array", "items": {"type": "object", "properties": {"price": {"minimum": 0}}}}
    }
}"#;

fn order_paid() -> MessageType {
    MessageType::new("OrderPaid").unwrap()
}

#[tokio::test]
async fn a_message_that_breaks_its_schema_is_poison_and_says_where() {
    let scene = Scene::with_attempts(5).await;
    let bodies = [
        r#"{"order": 1, "items": [{"price": 3}]}"#,
        r#"{"order": 2, "items": [{"price": 3}, {"price": -1}]}"#,
        r#"{"order": 3}"#,
        "no json",
    ];
    for body in bodies {
        scene.push_message(scene.message(body).message_type(order_paid())).await;
    }
    scene.push_message(scene.message("no json, but of another type")).await;
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = move |ctx: Context| {
        seen.add(String::from_utf8_lossy(ctx.payload()));
        async {}
    };
    let validator = SchemaValidator::new(order_paid(), ORDER).unwrap();
    let _running = scene.worker(handler).validator(validator).start();
    scene.completed(2).await;
    scene.quarantined(3).await;
    assert_eq!(notes.count(), 2);
    let mut found = Vec::new();
    for letter in scene.dead().await {
        let failure = scene.view(letter.id).await.history[0].failure.clone().unwrap();
        assert_eq!(failure.kind, Kind::Poison);
        found.push((failure.reason, failure.schema_path, failure.error));
    }
    found.sort();
    let paths: Vec<_> = found.iter().map(|(reason, path, _)| (*reason, path.as_deref())).collect();
    let expected = [
        (Reason::ValidationFailure, Some("/items")),
        (Reason::ValidationFailure, Some("/items/1/price")),
        (Reason::SerializationError, None),
    ];
    assert_eq!(paths, expected, "{found:#?}");
    assert!(!found[1].2.contains("-1"), "the value stays in the message: {}", found[1].2);
}

#[test]
fn a_schema_that_is_none_is_refused_with_its_type() {
    let error = SchemaValidator::new(order_paid(), r#"{"type": 7}"#).unwrap_err().to_string();
    assert!(error.starts_with("the schema of OrderPaid cannot be used: "), "{error}");
    assert!(SchemaValidator::new(order_paid(), "{").is_err());
    fn is_a_validator(_: impl Validator) {}
    is_a_validator(SchemaValidator::new(order_paid(), "true").unwrap());
}
