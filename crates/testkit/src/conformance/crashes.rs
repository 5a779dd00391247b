//! Processes die (rules 17 and 18, A9, I5, I6).

use sickbay_core::decide::SetAside;
use sickbay_core::delivery::Cause;
use sickbay_core::message::{Priority, Status};
use sickbay_core::policy::{Ordering, WhenHeadQuarantined};
use sickbay_core::port::{Claim, Replayed};
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::settlement::Settled;
use sickbay_core::stats::TypeGate;
use sickbay_core::{Failure, MessageId, NewMessage, QueuePolicy, Reason, Settlement};

use super::bench::{Bench, good, key, kind, message, process, queue, retry, retrying, seconds, stream};
use crate::fixture::Fixture;

/// A dead letter whose key is done, and what comes after it in its stream, in the hands of process 1.
async fn head_and_follower(bench: &Bench<'_>) -> (MessageId, MessageId) {
    let policy = QueuePolicy { when_head_quarantined: WhenHeadQuarantined::Pass, ..QueuePolicy::default() };
    bench.define("q", policy).await;
    let head = bench.dead(message("head").key(key("k")).stream(stream("s"))).await;
    bench.push(message("owner").key(key("k"))).await;
    let owner = bench.lease_one().await;
    bench.done(&owner).await;
    let follower = bench.push(message("follower").stream(stream("s"))).await;
    assert_eq!(bench.take(bench.claim_as(process(1), 1)).await[0].message.id, follower);
    (head, follower)
}

/// Rules 6, 18 and 20: the claim completes a replayed head whose key is done, and the suspect behind it is next.
pub async fn a_suspect_that_a_claim_makes_the_first_of_its_stream_is_handed_out_by_it(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let (head, follower) = head_and_follower(&bench).await;
    assert_eq!(good(bench.store().process_died(process(1), "signal 9".into()).await), 1);
    assert!(matches!(bench.replay(head).await, Replayed::Done));
    let got = bench.take(bench.claim_as(process(2), 3)).await;
    assert_eq!(got.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [follower]);
    assert!(got[0].suspect);
}

/// The same for a process whose hands are not empty: it gets nothing until they are.
pub async fn a_suspect_that_a_claim_makes_the_first_of_its_stream_ends_the_claim(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let (head, follower) = head_and_follower(&bench).await;
    let in_hand = bench.push(message("in hand")).await;
    assert_eq!(bench.take(bench.claim_as(process(2), 1)).await[0].message.id, in_hand);
    assert!(matches!(bench.replay(head).await, Replayed::Done));
    assert_eq!(good(bench.store().process_died(process(1), "signal 9".into()).await), 1);
    let plain = bench.push(message("plain")).await;
    assert!(bench.take(bench.claim_as(process(2), 3)).await.is_empty());
    assert_eq!(bench.take(bench.claim_as(process(3), 3)).await[0].message.id, follower);
    assert_eq!(bench.take(bench.claim_as(process(2), 3)).await[0].message.id, plain);
}

/// Rules 18 and 31: the first of two suspects that a probe would let through is taken out by hand.
pub async fn a_probe_lets_the_next_suspect_through_though_another_queue_has_one(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.define("r", QueuePolicy::default()).await;
    let from_r = |process| Claim { queue: queue("r"), ..bench.claim_as(process, 1) };
    assert!(bench.take(from_r(process(4))).await.is_empty(), "it works on both queues");
    let first = bench.push(message("a").message_type(kind("t"))).await;
    let second = bench.push(message("b").message_type(kind("t"))).await;
    bench.push(NewMessage { queue: queue("r"), ..message("c") }).await;
    bench.take(bench.claim_as(process(1), 1)).await;
    bench.take(bench.claim_as(process(2), 1)).await;
    bench.take(from_r(process(3))).await;
    let gate = async |gate| good(bench.store().set_type_gate(&queue("q"), &kind("t"), gate).await);
    gate(TypeGate::Paused).await;
    for dead in 1..4 {
        assert_eq!(good(bench.store().process_died(process(dead), "signal 9".into()).await), 1);
    }
    assert!(bench.take(bench.claim_as(process(4), 1)).await.is_empty());
    gate(TypeGate::Probing { left: 1 }).await;
    good(bench.store().dead_letter(vec![first], "by hand".into()).await);
    let taken = bench.take(bench.claim_as(process(4), 3)).await;
    assert_eq!(taken.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [second]);
}

/// Rule 18: it and something more urgent waited for their stream.
pub async fn a_suspect_whose_stream_comes_free_is_seen_behind_more_urgent_entries(f: &mut dyn Fixture) {
    let bench = Bench::with(f, QueuePolicy { ordering: Ordering::Available, ..retrying(5, 1) }).await;
    let entry = |payload: &'static str| message(payload).stream(stream("s"));
    let put_off = async |by: u64| {
        let got = bench.take(bench.claim_as(process(by), 1)).await;
        bench.apply(&got[0], retry(1, Failure::transient("later"))).await;
    };
    let urgent = bench.push(entry("urgent")).await;
    put_off(1).await;
    let killer = bench
        .push(entry("killer").priority(Priority::new(0).unwrap_or_default()).message_type(kind("t")))
        .await;
    put_off(1).await;
    bench.advance(1).await;
    let gate = async |gate| good(bench.store().set_type_gate(&queue("q"), &kind("t"), gate).await);
    let first = bench.take(bench.claim_as(process(1), 1)).await;
    assert_eq!(first[0].message.id, urgent);
    bench.apply(&first[0], retry(60, Failure::transient("later"))).await;
    assert_eq!(bench.take(bench.claim_as(process(2), 1)).await[0].message.id, killer);
    assert_eq!(good(bench.store().process_died(process(2), "signal 9".into()).await), 1);
    // Its type is stopped until another entry of the stream is in hand, and the urgent one is due.
    gate(TypeGate::Paused).await;
    bench.push(entry("leased")).await;
    let leased = bench.take(Claim { lease: seconds(600), ..bench.claim_as(process(3), 1) }).await.remove(0);
    bench.advance(60).await;
    gate(TypeGate::Open).await;
    bench.push(message("in hand")).await;
    assert_eq!(bench.take(bench.claim_as(process(4), 9)).await.len(), 1);
    bench.done(&leased).await;
    assert!(bench.take(bench.claim_as(process(4), 9)).await.is_empty(), "a suspect waits for empty hands");
    let alone = bench.take(bench.claim_as(process(5), 9)).await;
    assert_eq!(alone.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [killer]);
}

/// Rule 17.
pub async fn what_a_dead_process_held_is_suspect_at_once(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push_all(vec![message("a"), message("b"), message("c")]).await;
    let held = bench.take(bench.claim_as(process(1), 2)).await;
    let other = bench.take(bench.claim_as(process(2), 1)).await;
    assert_eq!(good(bench.store().process_died(process(1), "signal 9".into()).await), 2);
    assert_eq!(good(bench.store().process_died(process(1), "signal 9".into()).await), 0, "it dies once");
    for delivery in &held {
        let view = bench.view(delivery.message.id).await;
        assert!(view.suspect && view.status == Status::Pending);
        assert_eq!((view.counters.crashes, view.counters.charges), (1, 0), "not alone: not charged");
        assert_eq!((view.cause, view.history[0].end), (Some(Cause::Crashed), AttemptEnd::Crashed));
        assert_eq!(bench.settle(Settlement::complete(delivery.token())).await, Settled::LeaseLost);
    }
    bench.done(&other[0]).await;
}

/// Rule 17.
pub async fn the_evidence_of_a_death_is_kept(f: &mut dyn Fixture) {
    let bench = Bench::with(f, QueuePolicy { crash_budget: 2, ..QueuePolicy::default() }).await;
    let id = bench.push(message("a")).await;
    for _ in 0..2 {
        bench.take(bench.claim_as(process(1), 1)).await;
        good(bench.store().process_died(process(1), "signal 11, core dumped\0".into()).await);
    }
    let view = bench.view(id).await;
    for attempt in &view.history {
        let failure = attempt.failure.as_ref().unwrap_or_else(|| panic!("no evidence"));
        assert_eq!(failure.reason, Reason::Crash);
        assert_eq!(failure.error, "signal 11, core dumped\\u{0}");
    }
    let dead = view.dead.unwrap_or_else(|| panic!("not dead"));
    assert_eq!((dead.set_aside, dead.reason), (SetAside::CrashBudgetSpent, Reason::Crash));
}

/// Rule 17.
pub async fn a_store_whose_process_died_finds_it_out_when_it_is_opened(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a")).await;
    let lost = bench.lease_one().await;
    bench.f.crash();
    let view = bench.view(id).await;
    assert!(view.suspect);
    assert_eq!((view.counters.crashes, view.counters.charges, view.counters.deliveries), (1, 1, 1));
    assert_eq!(bench.settle(Settlement::complete(lost.token())).await, Settled::LeaseLost);
    let again = bench.lease_one().await;
    assert!(again.suspect && again.token().epoch > lost.token().epoch);
    bench.done(&again).await;
}

/// Rules 10 and 17: a retry that is due at once is counted like any other delivery.
pub async fn a_retry_in_hand_when_the_process_dies_comes_back_once(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let ids: Vec<_> = bench.push_all(vec![message("a"), message("b")]).await.iter().map(|p| p.id()).collect();
    let first = bench.lease(2).await;
    bench.apply(&first[0], retry(0, Failure::transient("busy"))).await;
    let again = bench.lease_one().await;
    assert_eq!((again.message.id, again.counters.deliveries), (ids[0], 2));
    let view = bench.view(ids[0]).await;
    assert_eq!((view.status, view.counters.deliveries), (Status::Active, 2));
    let stats = bench.stats().await;
    assert_eq!((stats.active, stats.retry_counts.len(), stats.poison_candidates), (2, 0, 0), "it is in hand");
    bench.f.crash();
    let view = bench.view(ids[0]).await;
    assert_eq!((view.counters.deliveries, view.counters.failures, view.counters.crashes), (2, 1, 1));
    for id in ids {
        let suspect = bench.lease_one().await;
        assert_eq!((suspect.message.id, suspect.cause), (id, Some(Cause::Crashed)));
        bench.done(&suspect).await;
    }
    assert!(bench.lease(9).await.is_empty());
}

/// A9, I5.
pub async fn a_lone_killer_is_quarantined_after_exactly_its_budget(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    for budget in 0..=5u32 {
        bench.define("q", QueuePolicy { crash_budget: budget, ..QueuePolicy::default() }).await;
        let id = bench.push(message("a")).await;
        let mut deaths = 0;
        while bench.view(id).await.status != Status::Dead {
            assert_eq!(bench.take(bench.claim_as(process(1), 9)).await.len(), 1);
            good(bench.store().process_died(process(1), "signal 9".into()).await);
            deaths += 1;
        }
        assert_eq!(deaths, budget.max(1), "with a budget of {budget}");
    }
}

/// Rule 27: found when the store is opened again.
pub async fn a_killer_that_is_found_at_the_next_start_names_its_last_delivery(f: &mut dyn Fixture) {
    let bench = Bench::with(f, QueuePolicy { crash_budget: 1, ..QueuePolicy::default() }).await;
    let id = bench.push(message("killer")).await;
    let delivery = bench.lease_one().await;
    bench.f.crash();
    let view = bench.view(id).await;
    assert_eq!(view.status, Status::Dead);
    assert_eq!(view.last_delivery, Some(delivery.token().to_string()));
}

/// A9, I6.
pub async fn an_innocent_that_was_there_every_time_is_never_quarantined(f: &mut dyn Fixture) {
    let bench = Bench::with(f, QueuePolicy { crash_budget: 1, ..QueuePolicy::default() }).await;
    let killer = bench.push(message("killer")).await;
    let innocents = bench.push_all((0..5).map(|_| message("innocent")).collect()).await;
    let mut rounds = 0;
    while bench.stats().await.completed < 5 {
        rounds += 1;
        assert!(rounds < 50, "it does not end");
        let held = bench.take(bench.claim_as(process(rounds), 9)).await;
        if held.iter().any(|delivery| delivery.message.id == killer) {
            good(bench.store().process_died(process(rounds), "signal 9".into()).await);
            continue;
        }
        for delivery in &held {
            bench.done(delivery).await;
        }
    }
    assert_eq!(bench.view(killer).await.status, Status::Dead);
    assert_eq!(innocents.len(), 5);
    assert_eq!(bench.stats().await.dead, 1);
}

/// Rule 18.
pub async fn a_process_with_a_suspect_in_hand_gets_nothing_else(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.define("r", QueuePolicy::default()).await;
    let id = bench.push(message("a")).await;
    bench.lease_one().await;
    bench.f.crash();
    let mut other = message("b");
    other.queue = queue("r");
    bench.push(other).await;
    bench.push(message("c")).await;
    let suspect = bench.lease(9).await;
    assert_eq!((suspect.len(), suspect[0].message.id, suspect[0].suspect), (1, id, true));
    assert!(bench.lease(9).await.is_empty());
    let mut claim = bench.claim(9);
    claim.queue = queue("r");
    assert!(bench.take(claim.clone()).await.is_empty(), "not from another queue either");
    assert_eq!(bench.take(bench.claim_as(process(7), 9)).await.len(), 1, "others go on");
    bench.done(&suspect[0]).await;
    assert_eq!(bench.take(claim).await.len(), 1);
}

/// Rule 18.
pub async fn a_failure_or_a_quarantine_clears_the_suspicion(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(2, 1)).await;
    let id = bench.push(message("a")).await;
    bench.lease_one().await;
    bench.f.crash();
    let suspect = bench.lease_one().await;
    assert!(suspect.suspect);
    bench.fail(&suspect, Failure::transient("no")).await;
    assert!(!bench.view(id).await.suspect);
    bench.advance(1).await;
    assert!(!bench.lease_one().await.suspect);
    bench.f.crash();
    let suspect = bench.lease_one().await;
    bench.fail(&suspect, Failure::transient("no")).await;
    bench.replay(id).await;
    assert!(!bench.lease_one().await.suspect, "a replay begins without suspicion");
}

/// Rules 18 and 9: what cannot be claimed holds nobody up.
pub async fn a_suspect_that_cannot_be_claimed_holds_nobody_up(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.define("r", QueuePolicy::default()).await;
    let mut elsewhere = message("a");
    elsewhere.queue = queue("r");
    bench.push(elsewhere).await;
    let mut claim = bench.claim(1);
    claim.queue = queue("r");
    bench.take(claim.clone()).await;
    bench.f.crash();
    claim.process = bench.f.process();
    claim.max = 0;
    bench.take(claim.clone()).await;
    bench.push(message("b")).await;
    good(bench.store().set_paused(&queue("r"), true).await);
    assert_eq!(bench.lease(1).await.len(), 1, "the suspect is in a paused queue");
}

/// Rules 17 and 20.
pub async fn a_suspect_keeps_its_place_in_its_stream(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let ids: Vec<_> = bench
        .push_all((0..3).map(|_| message("x").stream(stream("s"))).collect())
        .await
        .iter()
        .map(|pushed| pushed.id())
        .collect();
    assert_eq!(bench.lease_ids(2).await, ids[..2]);
    bench.f.crash();
    for id in &ids[..2] {
        let suspect = bench.lease(9).await;
        assert_eq!((suspect.len(), suspect[0].message.id, suspect[0].suspect), (1, *id, true));
        bench.done(&suspect[0]).await;
    }
    assert_eq!(bench.lease_ids(9).await, ids[2..]);
}

/// Rule 17: tokens of an earlier epoch are void.
pub async fn what_other_processes_held_comes_back_when_the_owner_died(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push_all(vec![message("a"), message("b")]).await;
    let own = bench.lease_one().await;
    let other = bench.take(bench.claim_as(process(1), 1)).await.remove(0);
    bench.f.crash();
    let view = bench.view(other.message.id).await;
    assert_eq!((view.status, view.suspect, view.counters.expiries), (Status::Pending, false, 1));
    assert_eq!(bench.settle(Settlement::complete(other.token())).await, Settled::LeaseLost);
    assert!(bench.view(own.message.id).await.suspect, "what the dead one held itself");
}
