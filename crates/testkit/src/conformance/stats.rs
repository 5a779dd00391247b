//! Figures (rule 30, I1, B13).

use std::collections::BTreeMap;
use std::time::Duration;

use sickbay_core::message::Status;
use sickbay_core::{Failure, QueuePolicy, Reason};

use super::bench::{Bench, code, good, message, queue, retrying, seconds, stream};
use crate::fixture::{Fixture, check_sums};

/// Rule 30.
pub async fn each_message_is_counted_in_exactly_one_place(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(3, 60)).await;
    let ids: Vec<_> =
        bench.push_all((0..7).map(|_| message("x")).collect()).await.iter().map(|p| p.id()).collect();
    let held = bench.lease(5).await;
    bench.done(&held[0]).await;
    bench.fail(&held[1], Failure::transient("no")).await;
    bench.fail(&held[2], Failure::poison("no")).await;
    bench.fail(&held[3], Failure::poison("no")).await;
    let _ = bench.store().discard(vec![ids[3]], "old".into()).await;
    let _ = bench.store().cancel(vec![ids[6]]).await;
    bench.push(message("later").delay(seconds(600))).await;
    let s = bench.stats().await;
    assert_eq!((s.pending, s.scheduled, s.failed, s.active), (1, 1, 1, 1));
    assert_eq!((s.dead, s.discarded, s.completed, s.removed, s.pushed), (1, 1, 1, 1, 8));
    let status = async |index: usize| bench.view(ids[index]).await.status;
    assert_eq!([status(1).await, status(2).await], [Status::Failed, Status::Dead]);
    assert_eq!([status(3).await, status(4).await], [Status::Discarded, Status::Active]);
    assert_eq!(status(5).await, Status::Pending);
    check_sums(bench.f).await;
}

/// Rule 30: of the waiting.
pub async fn waiting_messages_change_their_name_when_they_come_due(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(3, 10)).await;
    let id = bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    bench.fail(&delivery, Failure::transient("no")).await;
    assert_eq!(bench.view(id).await.status, Status::Failed);
    bench.advance(10).await;
    assert_eq!(bench.view(id).await.status, Status::Pending, "due again");
    let stats = bench.stats().await;
    assert_eq!((stats.pending, stats.failed, stats.next_due_at), (1, 0, None));
}

/// B13.
pub async fn the_backlog_says_when_it_is_due_and_how_often_it_failed(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(3, 10)).await;
    let now = bench.now();
    bench.push_all(vec![message("a"), message("b"), message("c").delay(seconds(500))]).await;
    let held = bench.lease(2).await;
    bench.fail(&held[0], Failure::transient("no")).await;
    bench.fail(&held[1], Failure::transient("no").retry_after(seconds(30))).await;
    let s = bench.stats().await;
    assert_eq!((s.next_due_at, s.latest_due_at), (Some(now.plus(seconds(10))), Some(now.plus(seconds(500)))));
    assert_eq!((s.retry_counts.get(&1), s.poison_candidates), (Some(&2), 0));
    bench.advance(10).await;
    let again = bench.lease_one().await;
    bench.fail(&again, Failure::transient("no")).await;
    let s = bench.stats().await;
    assert_eq!(
        (s.retry_counts.get(&1), s.retry_counts.get(&2), s.poison_candidates),
        (Some(&1), Some(&1), 1)
    );
}

/// B13.
pub async fn dead_letters_are_counted_by_reason(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let reasons = [Reason::ValidationFailure, Reason::TimeoutExceeded, Reason::ValidationFailure];
    for reason in reasons {
        bench.push(message("a")).await;
        let delivery = bench.lease_one().await;
        bench.fail(&delivery, Failure::poison("no").reason(reason)).await;
    }
    let s = bench.stats().await;
    assert_eq!(s.reasons, BTreeMap::from([("TimeoutExceeded".into(), 1), ("ValidationFailure".into(), 2)]));
    assert_eq!(s.dead_for(Reason::ValidationFailure), 2);
    let ids: Vec<_> = bench.quarantine(Default::default()).await.iter().map(|row| row.id).collect();
    let _ = bench.store().discard(ids, "old".into()).await;
    assert!(bench.stats().await.reasons.is_empty(), "what was discarded is not counted");
}

/// What was counted over the whole life of the queue stays.
pub async fn counts_outlive_crashes_and_clean_stops(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(2, 0)).await;
    bench.push_all(vec![message("a"), message("b"), message("c").delay(seconds(60))]).await;
    let held = bench.lease(2).await;
    bench.done(&held[0]).await;
    bench.fail(&held[1], Failure::poison("no")).await;
    let before = bench.stats().await;
    bench.f.crash();
    assert_eq!(bench.stats().await, before);
    bench.f.reopen();
    assert_eq!(bench.stats().await, before);
}

/// SB0001.
pub async fn figures_of_an_unknown_queue_are_refused(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let nowhere = queue("qq");
    let error = bench.store().stats(&nowhere).await;
    assert!(error.as_ref().is_err_and(|error| error.to_string().contains("\"q\"")), "it names the nearest");
    assert_eq!(code(error), "SB0001");
    assert_eq!(code(bench.store().streams(&nowhere, 1).await), "SB0001");
    assert_eq!(code(bench.store().stream(&nowhere, &stream("s"), 1).await), "SB0001");
    assert_eq!(code(bench.store().policy(&nowhere).await), "SB0001");
    assert_eq!(code(bench.store().purge(&nowhere, Duration::ZERO, 1).await), "SB0001");
    assert_eq!(code(bench.store().set_paused(&nowhere, true).await), "SB0001");
    assert_eq!(good(bench.store().queues().await).len(), 1, "asking made no queue");
}

/// Rule 32.
pub async fn a_completed_message_is_shown_for_as_long_as_its_queue_keeps_it(f: &mut dyn Fixture) {
    let policy = QueuePolicy { keep_completed: seconds(60), ..retrying(3, 0) };
    let bench = Bench::with(f, policy).await;
    let ids: Vec<_> =
        bench.push_all(vec![message("a"), message("b")]).await.iter().map(|pushed| pushed.id()).collect();
    let held = bench.lease(2).await;
    bench.done(&held[0]).await;
    bench.fail(&held[1], Failure::transient("not yet")).await;
    let again = bench.lease_one().await;
    bench.done(&again).await;
    let (plain, retried) = (bench.view(ids[0]).await, bench.view(ids[1]).await);
    assert_eq!((plain.status, retried.status), (Status::Completed, Status::Completed));
    assert_eq!((plain.message.payload.as_ref(), plain.counters.deliveries), (b"a".as_slice(), 1));
    assert_eq!((retried.counters.deliveries, retried.history.len()), (2, 1));
    assert_eq!(bench.stats().await.completed, 2);
    bench.advance(60).await;
    for id in ids {
        let prefix = id.to_string().parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(good(bench.store().find(prefix).await), None, "its time is over");
    }
}
