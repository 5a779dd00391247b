//! Order (rules 19 to 25, A13, B12).

use std::time::Duration;

use sickbay_core::decide::Decision;
use sickbay_core::message::Status;
use sickbay_core::policy::{Ordering, WhenHeadQuarantined};
use sickbay_core::settlement::Settled;
use sickbay_core::stats::{StreamEntry, StreamHold, StreamState};
use sickbay_core::{Failure, MessageId, QueuePolicy, Settlement};

use super::bench::{Bench, code, good, kind, message, process, queue, retry, retrying, seconds, stream};
use crate::fixture::Fixture;

async fn fill(bench: &Bench<'_>, count: usize) -> Vec<MessageId> {
    let pushed = bench.push_all((0..count).map(|_| message("x").stream(stream("s"))).collect()).await;
    pushed.iter().map(|pushed| pushed.id()).collect()
}

/// Rule 20.
pub async fn a_stream_has_one_holder_at_a_time(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let ids = fill(&bench, 4).await;
    let first = bench.take(bench.claim_as(process(1), 2)).await;
    assert_eq!(first.len(), 2);
    assert!(bench.take(bench.claim_as(process(2), 9)).await.is_empty());
    bench.done(&first[0]).await;
    assert!(bench.take(bench.claim_as(process(2), 9)).await.is_empty(), "one of the run is still out");
    bench.done(&first[1]).await;
    let second = bench.take(bench.claim_as(process(2), 9)).await;
    assert_eq!(second.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), ids[2..]);
}

/// Rule 19.
pub async fn streams_of_one_name_in_two_queues_are_two(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.define("r", QueuePolicy::default()).await;
    fill(&bench, 1).await;
    let mut other = message("y").stream(stream("s"));
    other.queue = queue("r");
    bench.push(other).await;
    assert_eq!(bench.lease(9).await.len(), 1);
    let mut claim = bench.claim(9);
    claim.queue = queue("r");
    assert_eq!(bench.take(claim).await.len(), 1);
}

/// Rule 21.
pub async fn a_run_is_no_longer_than_the_queue_allows(f: &mut dyn Fixture) {
    let bench = Bench::with(f, QueuePolicy { run_max: 3, ..QueuePolicy::default() }).await;
    let ids = fill(&bench, 5).await;
    assert_eq!(bench.lease_ids(9).await, ids[..3]);
}

/// Rule 20.
pub async fn the_order_of_a_stream_beats_priority_and_due_time(f: &mut dyn Fixture) {
    let bench = Bench::with(f, QueuePolicy { run_max: 1, ..QueuePolicy::default() }).await;
    let low = sickbay_core::Priority::new(0).unwrap_or_default();
    let high = sickbay_core::Priority::new(9).unwrap_or_default();
    let first = bench.push(message("a").stream(stream("s")).priority(low).delay(seconds(5))).await;
    let second = bench.push(message("b").stream(stream("s")).priority(high)).await;
    assert!(bench.lease(9).await.is_empty());
    bench.advance(5).await;
    let delivery = bench.lease_one().await;
    assert_eq!(delivery.message.id, first);
    bench.done(&delivery).await;
    assert_eq!(bench.lease_ids(1).await, [second]);
}

/// Seed 001: `ScheduledRetry_BlocksLaterMessages` and `ScheduledRetryExpires_UnblocksStream`.
pub async fn a_scheduled_retry_blocks_the_later_ones_until_its_time(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(3, 60)).await;
    let ids = fill(&bench, 3).await;
    let head = bench.lease_one().await;
    bench.fail(&head, Failure::transient("network timeout")).await;
    bench.advance(59).await;
    assert!(bench.lease(9).await.is_empty());
    bench.advance(1).await;
    assert_eq!(bench.lease_ids(9).await, ids, "all of them, in their order");
}

/// Seed 001: `StreamBasedFailureCascade_ReleasesLaterMessages`, in one exchange.
pub async fn a_cascade_releases_the_followers_in_the_same_exchange(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(3, 60)).await;
    let ids = fill(&bench, 3).await;
    let held = bench.lease(3).await;
    let mut failed = Settlement::new(held[0].token(), retry(60, Failure::transient("no")));
    failed.cascade = true;
    let settlements =
        vec![failed, Settlement::release(held[1].token()), Settlement::release(held[2].token())];
    let exchange = sickbay_core::port::Exchange { settlements, claim: Some(bench.claim(9)) };
    let exchanged = good(bench.store().exchange(exchange).await);
    assert_eq!(exchanged.settled, [Settled::Applied, Settled::Applied, Settled::Applied]);
    let got: Vec<_> = exchanged.deliveries.iter().map(|delivery| delivery.message.id).collect();
    assert_eq!(got, ids[1..]);
}

/// Rules 20 and 22.
pub async fn a_deferred_entry_is_taken_alone_and_never_beside_another(f: &mut dyn Fixture) {
    let policy = QueuePolicy { ordering: Ordering::Available, ..retrying(3, 10) };
    let bench = Bench::with(f, policy).await;
    let ids = fill(&bench, 3).await;
    let head = bench.lease_one().await;
    bench.fail(&head, Failure::transient("no")).await;
    bench.advance(10).await;
    // Both the deferred one and the next in order are due: by due time the next in order is first.
    let next = bench.lease(1).await;
    assert_eq!(next[0].message.id, ids[1]);
    assert!(bench.take(bench.claim_as(process(2), 9)).await.is_empty());
    bench.done(&next[0]).await;
    let last = bench.lease(9).await;
    assert_eq!(last.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), ids[2..]);
    bench.done(&last[0]).await;
    assert_eq!(bench.lease_ids(9).await, ids[..1]);
}

/// Rule 23.
pub async fn a_quarantined_head_holds_a_strict_stream(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let head = bench.dead(message("x").stream(stream("s"))).await;
    fill(&bench, 2).await;
    assert!(bench.lease(9).await.is_empty(), "also what is pushed later waits");
    let views = good(bench.store().streams(&queue("q"), 10).await);
    assert_eq!((views[0].state, views[0].head), (StreamState::Held, Some(head)));
    bench.f.crash();
    assert!(bench.lease(9).await.is_empty(), "a hold outlives a crash");
}

/// Rule 23.
pub async fn a_quarantined_head_does_not_hold_a_stream_that_passes(f: &mut dyn Fixture) {
    let policies = [
        QueuePolicy { when_head_quarantined: WhenHeadQuarantined::Pass, ..QueuePolicy::default() },
        QueuePolicy { ordering: Ordering::Available, ..QueuePolicy::default() },
    ];
    let bench = Bench::new(f).await;
    for policy in policies {
        bench.define("q", policy).await;
        bench.dead(message("x").stream(stream("s"))).await;
        let ids = fill(&bench, 1).await;
        let delivery = bench.lease_one().await;
        assert_eq!(delivery.message.id, ids[0]);
        bench.done(&delivery).await;
    }
}

/// Rule 24.
pub async fn a_replayed_head_takes_its_old_place(f: &mut dyn Fixture) {
    let bench = Bench::with(f, QueuePolicy { run_max: 1, ..QueuePolicy::default() }).await;
    let ids = fill(&bench, 3).await;
    for _ in 0..2 {
        let head = bench.lease_one().await;
        bench.fail(&head, Failure::poison("bad")).await;
        good(bench.store().release_followers(&queue("q"), &stream("s")).await);
    }
    bench.replay(ids[1]).await;
    bench.replay(ids[0]).await;
    for id in ids {
        let delivery = bench.lease_one().await;
        assert_eq!(delivery.message.id, id);
        bench.done(&delivery).await;
    }
}

/// Rule 25.
pub async fn releasing_followers_says_whether_there_was_anything_to_release(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(3, 60)).await;
    let release =
        async |bench: &Bench<'_>| good(bench.store().release_followers(&queue("q"), &stream("s")).await);
    assert!(!release(&bench).await, "no such stream");
    let ids = fill(&bench, 2).await;
    assert!(!release(&bench).await, "its head is due");
    let head = bench.lease_one().await;
    assert!(!release(&bench).await, "its head is leased");
    bench.fail(&head, Failure::transient("no")).await;
    assert!(release(&bench).await);
    assert_eq!(bench.lease_ids(9).await, ids[1..]);
    let unknown = bench.store().release_followers(&queue("nowhere"), &stream("s")).await;
    assert_eq!(code(unknown), "SB0001");
}

/// Rule 13 in a stream: a release puts the run back in order.
pub async fn a_released_run_comes_back_in_its_order(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let ids = fill(&bench, 3).await;
    let held = bench.lease(9).await;
    for index in [2, 0, 1] {
        bench.apply(&held[index], Decision::Release { after: Duration::ZERO }).await;
    }
    assert_eq!(bench.lease_ids(9).await, ids);
}

/// B12.
pub async fn blocked_streams_are_listed_first_and_say_by_what(f: &mut dyn Fixture) {
    let bench = Bench::with(f, QueuePolicy { run_max: 1, ..retrying(3, 60) }).await;
    let named = |name: &str| message("x").stream(stream(name));
    let held_at = bench.now();
    let held = bench.dead(named("held")).await;
    bench.push(named("held")).await;
    let waiting = bench.push(named("waiting")).await;
    let delivery = bench.lease_one().await;
    bench.fail(&delivery, Failure::transient("no")).await;
    let leased = bench.push(named("leased")).await;
    bench.lease_one().await;
    bench.advance(5).await;
    let ready = bench.push(named("ready")).await;
    let views = good(bench.store().streams(&queue("q"), 10).await);
    let told: Vec<_> = views.iter().map(|view| (view.key.as_str(), view.state, view.head)).collect();
    assert_eq!(told[0], ("held", StreamState::Held, Some(held)));
    assert_eq!(told[1], ("waiting", StreamState::Scheduled, Some(waiting)));
    assert!(told.contains(&("leased", StreamState::Leased, Some(leased))));
    assert!(told.contains(&("ready", StreamState::Ready, Some(ready))));
    assert_eq!((views[0].since, views[0].length), (Some(held_at), 2), "the dead head counts");
    assert_eq!(views[1].due_at, Some(held_at.plus(seconds(60))));
    assert_eq!(good(bench.store().streams(&queue("q"), 2).await).len(), 2);
}

/// B12.
pub async fn a_stream_shows_its_holds_and_its_entries_in_order(f: &mut dyn Fixture) {
    let bench = Bench::with(f, QueuePolicy { run_max: 1, ..retrying(3, 60) }).await;
    let (q, s) = (queue("q"), stream("s"));
    assert_eq!(good(bench.store().stream(&q, &s, 10).await), None);
    let began = bench.now();
    let first = bench.push(message("x").stream(s.clone()).message_type(kind("mail"))).await;
    let delivery = bench.lease_one().await;
    bench.fail(&delivery, Failure::transient("no")).await;
    assert!(good(bench.store().release_followers(&q, &s).await), "the first is let out of the order");
    let held = bench.dead(message("x").stream(s.clone())).await;
    let last = bench.push(message("x").stream(s.clone()).delay(seconds(5))).await;
    let detail = good(bench.store().stream(&q, &s, 10).await).unwrap_or_else(|| panic!("no stream"));
    assert_eq!(detail.view, good(bench.store().streams(&q, 10).await)[0], "the list says the same");
    assert_eq!((detail.view.state, detail.view.length), (StreamState::Held, 3));
    assert_eq!(detail.holds, [StreamHold { id: held, since: began }]);
    let told = |entry: &StreamEntry| (entry.id, entry.status, entry.deferred, entry.failures);
    let entries: Vec<_> = detail.entries.iter().map(told).collect();
    assert_eq!(entries, [(first, Status::Failed, true, 1), (last, Status::Scheduled, false, 0)]);
    assert_eq!(detail.entries[0].message_type, Some(kind("mail")));
    assert_eq!(detail.entries[0].due_at, began.plus(seconds(60)));
    assert_eq!(detail.entries[1].due_at, began.plus(seconds(5)));
    let short = good(bench.store().stream(&q, &s, 1).await).unwrap_or_else(|| panic!("no stream"));
    assert_eq!((short.entries.len(), short.view.length), (1, 3), "rows are bounded, the length is not");
    assert_eq!(short.entries[0].id, first);
    bench.advance(60).await;
    let delivery = bench.lease_one().await;
    assert_eq!(delivery.message.id, first);
    let detail = good(bench.store().stream(&q, &s, 10).await).unwrap_or_else(|| panic!("no stream"));
    assert_eq!((detail.view.state, detail.entries[0].status), (StreamState::Leased, Status::Active));
}
