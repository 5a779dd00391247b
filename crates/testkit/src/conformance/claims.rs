//! Who gets what, and when (rules 8 to 12, 31).

use std::time::Duration;

use sickbay_core::decide::SetAside;
use sickbay_core::message::{Priority, Status};
use sickbay_core::policy::Ordering;
use sickbay_core::port::{Exchange, Exchanged};
use sickbay_core::settlement::Settled;
use sickbay_core::stats::TypeGate;
use sickbay_core::{Failure, QueuePolicy, Reason, Settlement};

use super::bench::{Bench, code, good, kind, message, process, queue, retrying, seconds, stream};
use crate::fixture::Fixture;

/// Rule 8.
pub async fn claims_take_the_highest_priority_first(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let mut ids = Vec::new();
    for priority in [4, 0, 9, 5] {
        ids.push(bench.push(message("x").priority(Priority::new(priority).unwrap_or_default())).await);
    }
    assert_eq!(bench.lease_ids(9).await, [ids[2], ids[3], ids[0], ids[1]]);
}

/// Rule 8.
pub async fn of_one_priority_the_longest_due_comes_first(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(5, 10)).await;
    let late = bench.push(message("late").delay(seconds(20))).await;
    let soon = bench.push(message("soon").delay(seconds(5))).await;
    let first = bench.push(message("first")).await;
    let delivery = bench.lease_one().await;
    assert_eq!(delivery.message.id, first);
    bench.fail(&delivery, Failure::transient("again")).await;
    bench.advance(30).await;
    let fresh = bench.push(message("fresh")).await;
    assert_eq!(bench.lease_ids(9).await, [soon, first, late, fresh]);
}

/// Rule 10, A2.
pub async fn a_delivery_is_counted_when_it_is_claimed(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a")).await;
    let now = bench.now();
    let delivery = bench.lease_one().await;
    assert_eq!(delivery.counters.deliveries, 1);
    assert_eq!(delivery.lease.expires_at, now.plus(seconds(30)));
    let view = bench.view(id).await;
    assert_eq!((view.status, view.counters.deliveries), (Status::Active, 1));
    assert_eq!(view.worker.as_deref(), Some("host/1/worker"));
}

/// Rule 10.
pub async fn tokens_of_later_claims_are_larger(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push_all(vec![message("a"), message("b"), message("c")]).await;
    let first = bench.lease(2).await;
    let second = bench.lease(1).await;
    assert_eq!(first[0].token().claim, first[1].token().claim);
    assert!(second[0].token().claim > first[0].token().claim);
    bench.f.crash();
    let third = bench.lease(1).await;
    assert!(third[0].token().epoch > first[0].token().epoch, "a restart begins a new epoch");
}

/// A claim takes at most what it asked for.
pub async fn a_claim_never_gets_more_than_it_asked_for(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push_all((0..20).map(|n| message("x").stream(stream(&format!("{}", n % 3)))).collect()).await;
    assert!(bench.lease(0).await.is_empty());
    for max in [1, 2, 5] {
        assert!(bench.lease(max).await.len() <= max as usize);
    }
}

/// Rule 9.
pub async fn a_paused_queue_hands_nothing_out_but_takes_everything_in(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push_all(vec![message("a"), message("b")]).await;
    let held = bench.lease_one().await;
    good(bench.store().set_paused(&queue("q"), true).await);
    let pushed = bench.push(message("c")).await;
    assert!(bench.lease(9).await.is_empty());
    bench.done(&held).await;
    assert!(bench.stats().await.paused);
    bench.f.crash();
    assert!(bench.lease(9).await.is_empty(), "a pause outlives a crash");
    good(bench.store().set_paused(&queue("q"), false).await);
    assert_eq!(bench.lease_ids(9).await.last(), Some(&pushed));
}

/// Rules 9 and 31.
pub async fn probes_count_down_and_the_gate_is_closed_at_zero(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push_all((0..5).map(|_| message("x").message_type(kind("mail"))).collect()).await;
    good(bench.store().set_type_gate(&queue("q"), &kind("mail"), TypeGate::Tripped).await);
    assert!(bench.lease(9).await.is_empty());
    good(bench.store().set_type_gate(&queue("q"), &kind("mail"), TypeGate::Probing { left: 2 }).await);
    assert_eq!(bench.lease(1).await.len(), 1);
    assert_eq!(bench.stats().await.paused_types, [(kind("mail"), TypeGate::Probing { left: 1 })]);
    assert_eq!(bench.lease(9).await.len(), 1);
    assert!(bench.lease(9).await.is_empty());
    good(bench.store().set_type_gate(&queue("q"), &kind("mail"), TypeGate::Open).await);
    assert_eq!(bench.lease(9).await.len(), 3);
    assert!(bench.stats().await.paused_types.is_empty());
}

/// Rule 9: a closed gate does not cost other types anything.
pub async fn a_paused_type_does_not_hold_others_up(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push_all((0..300).map(|_| message("x").message_type(kind("mail"))).collect()).await;
    good(bench.store().set_type_gate(&queue("q"), &kind("mail"), TypeGate::Paused).await);
    let plain = bench.push(message("y")).await;
    let bill = bench.push(message("z").message_type(kind("bill"))).await;
    assert_eq!(bench.lease_ids(9).await, [plain, bill]);
    assert_eq!(bench.stats().await.pending, 300);
}

/// Rule 11.
pub async fn an_exchange_with_settlements_never_waits(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    let mut claim = bench.claim(1);
    claim.wait = Duration::from_secs(3600);
    let settlements = vec![Settlement::complete(delivery.token())];
    let exchanged = good(bench.store().exchange(Exchange { settlements, claim: Some(claim) }).await);
    assert_eq!(exchanged, Exchanged { settled: vec![Settled::Applied], deliveries: Vec::new() });
}

/// A12.
pub async fn one_exchange_settles_a_batch_and_claims_the_next(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(5, 10)).await;
    bench.push_all((0..5).map(|n| message(format!("{n}"))).collect()).await;
    let held = bench.lease(3).await;
    let again = bench.decide(&held[1], Failure::transient("again")).await;
    let settlements = vec![
        Settlement::complete(held[0].token()),
        Settlement::new(held[1].token(), again),
        Settlement::release(held[2].token()),
        Settlement::complete(held[0].token()),
    ];
    let exchanged = good(bench.store().exchange(Exchange { settlements, claim: Some(bench.claim(2)) }).await);
    assert_eq!(exchanged.settled, [Settled::Applied, Settled::Applied, Settled::Applied, Settled::LeaseLost]);
    let ids: Vec<_> = exchanged.deliveries.iter().map(|delivery| delivery.message.id.number()).collect();
    assert_eq!(ids, [3, 4], "what was released is claimed by the same exchange");
}

/// Rule 11.
pub async fn a_waiting_claim_is_served_by_a_push(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let mut claim = bench.claim(1);
    claim.wait = Duration::from_secs(3600);
    let (waited, pushed) = tokio::join!(bench.take(claim), bench.push(message("a")));
    assert_eq!(waited[0].message.id, pushed);
}

/// Rule 11.
pub async fn a_waiting_claim_is_served_when_something_comes_due(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a").delay(seconds(10))).await;
    let mut claim = bench.claim(1);
    claim.wait = Duration::from_secs(60);
    let waited = bench.take_while_time_passes(claim, 10).await;
    assert_eq!(waited[0].message.id, id);
}

/// Rules 11 and 16.
pub async fn a_waiting_claim_is_served_when_a_lease_runs_out(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a")).await;
    bench.take(bench.claim_as(process(1), 1)).await;
    let mut claim = bench.claim(1);
    claim.wait = Duration::from_secs(60);
    let waited = bench.take_while_time_passes(claim, 30).await;
    assert_eq!((waited[0].message.id, waited[0].counters.expiries), (id, 1));
}

/// Rule 11.
pub async fn a_waiting_claim_gives_up_when_its_time_is_over(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let mut claim = bench.claim(1);
    claim.wait = Duration::from_secs(60);
    let waited = bench.take_while_time_passes(claim, 60).await;
    assert!(waited.is_empty());
}

/// Rule 11.
pub async fn a_claim_whose_caller_has_gone_takes_nothing(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let mut claim = bench.claim(1);
    claim.wait = Duration::from_secs(3600);
    let waiting = bench.take(claim);
    let gone = tokio::select! {
        biased;
        _ = waiting => false,
        () = std::future::ready(()) => true,
    };
    assert!(gone);
    let id = bench.push(message("a")).await;
    // Whether it was handed out and given back or never taken: it can be had, and nothing is charged.
    let mut claim = bench.claim(1);
    claim.wait = Duration::from_secs(3600);
    let delivery = bench.take(claim).await.remove(0);
    assert_eq!(delivery.message.id, id);
    assert_eq!(delivery.counters.counted(), 1);
}

/// Rule 11.
pub async fn a_claim_that_was_answered_when_its_caller_went_takes_nothing(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let mut claim = bench.claim(1);
    claim.wait = Duration::from_secs(3600);
    let store = bench.store();
    let mut waiting = store.exchange(Exchange::claim(claim));
    assert!(futures::poll!(&mut waiting).is_pending());
    let id = bench.push(message("a")).await;
    // By now a store that answers by itself has done so; nobody looks at the answer.
    store.sweep().await.unwrap_or_else(|error| panic!("{error}"));
    drop(waiting);
    let mut claim = bench.claim(1);
    claim.wait = Duration::from_secs(3600);
    let delivery = bench.take(claim).await.remove(0);
    assert_eq!(delivery.message.id, id);
    assert_eq!(delivery.counters.counted(), 1);
}

/// Rules 8, 11 and 18.
pub async fn a_claim_that_does_not_wait_gets_what_one_that_waits_cannot_have(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let suspect = bench.push(message("a")).await;
    bench.take(bench.claim_as(process(9), 1)).await;
    bench.push(message("b")).await;
    bench.take(bench.claim_as(process(1), 1)).await;
    let died = bench.store().process_died(process(9), "killed".to_owned()).await;
    assert_eq!(died.unwrap_or_else(|error| panic!("{error}")), 1);
    // A process with something in its hands does not get a suspect, and waits for it.
    let mut claim = bench.claim_as(process(1), 1);
    claim.wait = Duration::from_secs(3600);
    let store = bench.store();
    let mut waiting = store.exchange(Exchange::claim(claim));
    assert!(futures::poll!(&mut waiting).is_pending());
    let taken = bench.take(bench.claim_as(process(2), 1)).await;
    assert_eq!(taken.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [suspect]);
}

/// Rules 20 and 31: those that come before it wait for their streams.
pub async fn a_probe_lets_through_what_can_be_claimed(f: &mut dyn Fixture) {
    let policy = QueuePolicy { ordering: Ordering::Available, ..retrying(5, 1) };
    let bench = Bench::with(f, policy).await;
    for name in ["s", "u"] {
        bench.push(message("fails").stream(stream(name)).message_type(kind("t"))).await;
        let delivery = bench.lease_one().await;
        bench.fail(&delivery, Failure::transient("no")).await;
    }
    for name in ["s", "u"] {
        bench.push(message("goes on").stream(stream(name))).await;
    }
    bench.advance(2).await;
    let gate = async |gate| good(bench.store().set_type_gate(&queue("q"), &kind("t"), gate).await);
    gate(TypeGate::Paused).await;
    let free = bench.push(message("free").message_type(kind("t"))).await;
    let taken = bench.take(bench.claim_as(process(1), 9)).await;
    assert!(taken.iter().all(|delivery| delivery.message.payload == "goes on"), "{taken:?}");
    assert_eq!(taken.len(), 2);
    gate(TypeGate::Probing { left: 1 }).await;
    let taken = bench.take(bench.claim_as(process(2), 9)).await;
    assert_eq!(taken.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [free]);
}

/// Rule 12, I9.
pub async fn a_message_whose_bytes_changed_is_set_aside_and_never_delivered(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let bad = bench.push(message("these bytes will change")).await;
    let good_one = bench.push(message("these will not")).await;
    bench.f.damage(bad);
    let mut ids = bench.lease_ids(9).await;
    if ids.is_empty() {
        ids = bench.lease_ids(9).await;
    }
    assert_eq!(ids, [good_one]);
    let dead = bench.view(bad).await.dead.unwrap_or_else(|| panic!("it is not in quarantine"));
    assert_eq!((dead.set_aside, dead.reason), (SetAside::Corrupt, Reason::Corrupt));
}

/// Rule 3.
pub async fn a_claim_on_an_unknown_queue_is_refused(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let mut claim = bench.claim(1);
    claim.queue = queue("nowhere");
    claim.wait = Duration::from_secs(60);
    assert_eq!(code(bench.store().exchange(Exchange::claim(claim)).await), "SB0001");
}
