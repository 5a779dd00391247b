//! Numbers, batches, bytes (rules 1 to 3, I9).

use bytes::Bytes;
use sickbay_core::message::Priority;
use sickbay_core::port::Pushed;
use sickbay_core::{MessageId, MessageType, Stages};

use super::bench::{Bench, code, key, message, queue, seconds, stream};
use crate::fixture::Fixture;

/// Rule 1.
pub async fn numbers_go_up_across_queues_and_are_never_used_again(f: &mut dyn Fixture) {
    let mut bench = Bench::new(f).await;
    bench.define("r", Default::default()).await;
    let first = bench.push(message("a")).await;
    let mut other = message("b");
    other.queue = queue("r");
    let second = bench.push(other).await;
    assert_eq!(second.number(), first.number() + 1);
    let delivery = bench.lease_one().await;
    bench.done(&delivery).await;
    let cancelled = bench.push(message("c")).await;
    let _ = bench.store().cancel(vec![cancelled]).await;
    bench = Bench { f: bench.f };
    bench.f.reopen();
    let third = bench.push(message("d")).await;
    assert_eq!(third.number(), cancelled.number() + 1, "the number of a message that is gone was used again");
}

/// Rule 1.
pub async fn a_duplicate_uses_no_number(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let first = bench.push(message("a").key(key("k"))).await;
    let again = bench.push_all(vec![message("b").key(key("k"))]).await;
    assert_eq!(again, [Pushed::Duplicate(first)]);
    assert_eq!(bench.push(message("c")).await.number(), first.number() + 1);
}

/// Rule 2.
pub async fn a_batch_is_stored_as_a_whole_in_its_order(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let pushed = bench.push_all((0..100).map(|n| message(format!("{n}"))).collect()).await;
    let ids: Vec<MessageId> = pushed.iter().map(|pushed| pushed.id()).collect();
    assert!(ids.windows(2).all(|pair| pair[1].number() == pair[0].number() + 1));
    assert_eq!(bench.lease_ids(100).await, ids);
}

/// Rule 2.
pub async fn one_bad_message_keeps_the_whole_batch_out(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let mut lost = message("b");
    lost.queue = queue("nowhere");
    let refused = bench.store().push(vec![message("a").key(key("k")), lost, message("c")]).await;
    assert_eq!(code(refused), "SB0001");
    assert_eq!(bench.stats().await.pushed, 0);
    let first = bench.push(message("d").key(key("k"))).await;
    assert_eq!(first.number(), 1, "a batch that was refused used numbers or keys");
}

/// Rule 2, nothing acknowledged is lost.
pub async fn what_was_pushed_is_there_after_a_crash_and_after_a_clean_stop(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("kept").key(key("k")).header("a", "b").delay(seconds(5))).await;
    let before = bench.view(id).await;
    bench.f.crash();
    assert_eq!(bench.view(id).await, before);
    bench.f.reopen();
    assert_eq!(bench.view(id).await, before);
    assert_eq!(bench.push_all(vec![message("x").key(key("k"))]).await, [Pushed::Duplicate(id)]);
}

/// I9.
pub async fn everything_about_a_message_arrives_as_it_was_pushed(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let mut pushed = message(&b"{\"order\":7}"[..])
        .message_type(MessageType::new("OrderPaid").unwrap_or_else(|error| panic!("{error}")))
        .stream(stream("customer №7"))
        .key(key("k ✓"))
        .priority(Priority::new(7).unwrap_or_default())
        .deadline(seconds(60))
        .header("tenant", "acme")
        .header("tenant", "again")
        .header("", "");
    pushed.stages = Stages::STORED;
    let now = bench.now();
    bench.push(pushed.clone()).await;
    let delivery = bench.lease_one().await;
    let got = &delivery.message;
    assert_eq!((&got.payload, &got.headers), (&pushed.payload, &pushed.headers));
    assert_eq!(
        (&got.message_type, &got.stream, &got.key),
        (&pushed.message_type, &pushed.stream, &pushed.key)
    );
    assert_eq!((got.priority, got.pushed_at), (pushed.priority, now));
    assert_eq!(got.deadline_at, Some(now.plus(seconds(60))));
    assert_eq!((delivery.stages, delivery.cause, delivery.suspect), (Stages::STORED, None, false));
}

/// I9.
pub async fn any_bytes_come_out_as_they_went_in(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    let large: Vec<u8> = (0..10_000_000u32).map(|n| (n % 251) as u8).collect();
    let payloads: Vec<Bytes> = vec![
        Bytes::new(),
        Bytes::from_static(b"\0"),
        Bytes::from_static(b"\xED\xA0\x80\xFF"),
        deep.into(),
        large.into(),
    ];
    for payload in payloads {
        let id = bench.push(message(payload.clone())).await;
        let delivery = bench.lease_one().await;
        assert_eq!(delivery.message.id, id);
        assert!(delivery.message.payload == payload, "{} bytes came out otherwise", payload.len());
        assert!(bench.view(id).await.message.payload == payload);
        bench.done(&delivery).await;
    }
}

/// Rule 8, A16.
pub async fn a_delayed_message_is_scheduled_and_due_to_the_millisecond(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a").delay(seconds(10))).await;
    assert_eq!(bench.view(id).await.due_at, Some(bench.now().plus(seconds(10))));
    let stats = bench.stats().await;
    assert_eq!((stats.scheduled, stats.pending), (1, 0));
    bench.f.clock().advance(std::time::Duration::from_millis(9_999));
    assert!(bench.lease(1).await.is_empty());
    bench.f.clock().advance(std::time::Duration::from_millis(1));
    assert_eq!(bench.lease_ids(1).await, [id]);
}

/// A delay or deadline beyond all time is no error.
pub async fn an_endless_delay_never_comes_due(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id =
        bench.push(message("a").delay(std::time::Duration::MAX).deadline(std::time::Duration::MAX)).await;
    bench.advance(1_000_000).await;
    assert!(bench.lease(1).await.is_empty());
    let _ = bench.store().hasten(vec![id]).await;
    assert_eq!(bench.lease_ids(1).await, [id]);
}

/// An empty batch is no error.
pub async fn nothing_pushed_is_nothing_stored(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    assert!(bench.push_all(Vec::new()).await.is_empty());
    assert_eq!(bench.stats().await.pushed, 0);
}
