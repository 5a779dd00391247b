//! What is refused at the door (rule 3, I11).

use bytes::Bytes;
use sickbay_core::classify::Rule;
use sickbay_core::port::{Pushed, Replay};
use sickbay_core::{ErrorKind, Kind, QueuePolicy};

use super::bench::{Bench, code, good, key, message, queue};
use crate::fixture::Fixture;

/// SB0001.
pub async fn a_push_to_an_unknown_queue_names_the_nearest(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.define("orders", QueuePolicy::default()).await;
    bench.define("mails", QueuePolicy::default()).await;
    let mut lost = message("a");
    lost.queue = queue("ordres");
    let error = bench.store().push(vec![lost]).await.err().unwrap_or_else(|| panic!("it was taken"));
    assert_eq!((error.code(), error.kind()), ("SB0001", ErrorKind::NotFound));
    assert!(error.to_string().contains("\"ordres\"") && error.to_string().contains("\"orders\""), "{error}");
}

/// SB0002: 16 MiB, not a byte more.
pub async fn a_payload_above_the_limit_is_refused_and_one_at_it_is_not(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let at_limit = Bytes::from(vec![7u8; 16 << 20]);
    let above = Bytes::from(vec![7u8; (16 << 20) + 1]);
    assert_eq!(code(bench.store().push(vec![message("a"), message(above.clone())]).await), "SB0002");
    assert_eq!(bench.stats().await.pushed, 0);
    let id = bench.push(message(at_limit)).await;
    let _ = bench.store().dead_letter(vec![id], "why".into()).await;
    let replay = Replay { payload: Some(above), ..Replay::raw(id) };
    assert_eq!(code(bench.store().replay(vec![replay]).await), "SB0002");
    assert_eq!(bench.stats().await.dead, 1);
}

/// SB0003: 64 KiB of names and values.
pub async fn headers_above_the_limit_are_refused(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let name = "n".repeat(100);
    bench.push(message("a").header(name.clone(), "v".repeat((64 << 10) - 100))).await;
    let above = message("a").header(name, "v".repeat((64 << 10) - 99));
    assert_eq!(code(bench.store().push(vec![above]).await), "SB0003");
}

/// SB0017.
pub async fn a_policy_that_cannot_work_is_refused_and_the_old_one_stays(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let bad = QueuePolicy {
        classification: vec![Rule::new(Kind::Poison).regex("(")],
        crash_budget: 99,
        ..QueuePolicy::default()
    };
    assert_eq!(code(bench.store().define_queue(&queue("q"), bad.clone()).await), "SB0017");
    assert_eq!(code(bench.store().define_queue(&queue("new"), bad).await), "SB0017");
    let mut jitter = QueuePolicy::default();
    jitter.retry.jitter = f64::NAN;
    assert_eq!(code(bench.store().define_queue(&queue("q"), jitter).await), "SB0017");
    assert_eq!(*good(bench.store().policy(&queue("q")).await), QueuePolicy::default());
    assert_eq!(good(bench.store().queues().await).len(), 1);
}

/// Names that look like patterns or statements are names.
pub async fn hostile_keys_and_headers_are_only_text(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let hostile = ["'; DROP TABLE message; --", "%", "_", "\"", "\\", "𝒳🦀"];
    for text in hostile {
        let id = bench.push(message(text).key(key(text)).header(text, "\0\u{1b}")).await;
        assert_eq!(bench.push_all(vec![message("b").key(key(text))]).await, [Pushed::Duplicate(id)]);
    }
    let delivered = bench.lease(99).await;
    assert_eq!(delivered.len(), hostile.len());
    for (delivery, text) in delivered.iter().zip(hostile) {
        assert_eq!(delivery.message.headers, [(text.to_owned(), "\0\u{1b}".to_owned())]);
    }
}
