//! How deliveries end (rules 13 to 15; A1 to A3, A7, A11).

use std::time::Duration;

use sickbay_core::decide::{Decision, SetAside};
use sickbay_core::delivery::Cause;
use sickbay_core::message::Status;
use sickbay_core::port::Exchange;
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::settlement::Settled;
use sickbay_core::verdict::Effect;
use sickbay_core::{Failure, Kind, Reason, Settlement, Stages};

use super::bench::{Bench, code, good, message, retry, retrying, seconds};
use crate::fixture::Fixture;

/// Rule 13.
pub async fn a_completed_message_is_gone(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    bench.done(&delivery).await;
    assert!(bench.find(id).await.is_none());
    let stats = bench.stats().await;
    assert_eq!((stats.completed, stats.active, stats.pushed), (1, 0, 1));
}

/// Rule 13, I3.
pub async fn a_settlement_under_a_lost_lease_changes_nothing(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(5, 10)).await;
    let id = bench.push(message("a")).await;
    let lost = bench.lease_one().await;
    bench.advance(30).await;
    let held = bench.lease_one().await;
    let (before, stats) = (bench.view(id).await, bench.stats().await);
    let poison =
        Decision::Quarantine { set_aside: SetAside::NonRetryableError, failure: Failure::poison("x") };
    let decisions = [
        Decision::Complete,
        retry(1, Failure::transient("x")),
        Decision::Release { after: Duration::ZERO },
        Decision::Redeliver,
        poison,
    ];
    for decision in decisions {
        let mut settlement = Settlement::new(lost.token(), decision);
        settlement.effect = Some(bench.f.effect("never"));
        assert_eq!(bench.settle(settlement).await, Settled::LeaseLost);
    }
    assert_eq!((bench.view(id).await, bench.stats().await), (before, stats));
    assert!(bench.f.effects().is_empty());
    bench.done(&held).await;
}

/// Rule 13: tokens that were never given.
pub async fn an_invented_token_settles_nothing(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push(message("a")).await;
    let token = bench.lease_one().await.token();
    let mut other_epoch = token;
    other_epoch.epoch += 1;
    let mut other_claim = token;
    other_claim.claim += 1;
    let mut other_message = token;
    other_message.message = sickbay_core::MessageId::from_number(99).unwrap_or(token.message);
    for token in [other_epoch, other_claim, other_message] {
        assert_eq!(bench.settle(Settlement::complete(token)).await, Settled::LeaseLost);
    }
    assert_eq!(bench.stats().await.active, 1);
}

/// A3, seed 000: concurrent abandons of one delivery.
pub async fn of_many_settlements_of_one_delivery_one_wins(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(5, 10)).await;
    let id = bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    let settle = || bench.settle(Settlement::new(delivery.token(), retry(10, Failure::transient("x"))));
    let answers = tokio::join!(settle(), settle(), settle(), settle());
    let answers = [answers.0, answers.1, answers.2, answers.3];
    assert_eq!(answers.iter().filter(|answer| **answer == Settled::Applied).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| **answer == Settled::LeaseLost).count(), 3, "{answers:?}");
    assert_eq!(bench.view(id).await.counters.failures, 1);
}

/// Rule 13.
pub async fn a_retry_waits_for_its_time_and_says_why_it_comes(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    bench.apply(&delivery, retry(60, Failure::transient("no route"))).await;
    let view = bench.view(id).await;
    assert_eq!((view.status, view.due_at), (Status::Failed, Some(bench.now().plus(seconds(60)))));
    bench.advance(59).await;
    assert!(bench.lease(1).await.is_empty());
    bench.advance(1).await;
    let again = bench.lease_one().await;
    assert_eq!(
        (again.cause, again.counters.failures, again.counters.deliveries),
        (Some(Cause::Failed), 1, 2)
    );
}

/// Rule 13, A2.
pub async fn a_release_counts_no_attempt_and_keeps_the_place(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let first = bench.push(message("a")).await;
    bench.advance(10).await;
    let second = bench.push(message("b")).await;
    let held = bench.lease(2).await;
    bench.advance(5).await;
    for delivery in held.iter().rev() {
        bench.apply(delivery, Decision::Release { after: Duration::ZERO }).await;
    }
    let again = bench.lease(2).await;
    assert_eq!([again[0].message.id, again[1].message.id], [first, second]);
    assert_eq!(again[0].counters.counted(), 1, "a release is not an attempt");
    assert_eq!((again[0].counters.releases, again[0].cause), (1, Some(Cause::Released)));
}

/// Rule 14, A11.
pub async fn stages_are_added_and_a_failure_marks_them(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    let mut settlement = Settlement::new(delivery.token(), retry(0, Failure::transient("transport gone")));
    settlement.stages = Stages::STORED.with(Stages::EVENT_STORED);
    assert_eq!(bench.settle(settlement).await, Settled::Applied);
    let again = bench.lease_one().await;
    assert_eq!(again.stages.bits(), 32771, "Stored, EventStored and Failed as in seed 001");
    let mut settlement = Settlement::release(again.token());
    settlement.stages = Stages::PUBLISHED;
    assert_eq!(bench.settle(settlement).await, Settled::Applied);
    assert!(bench.lease_one().await.stages.has(Stages::STORED.with(Stages::PUBLISHED)));
}

/// A3: never one earlier or later.
pub async fn poison_comes_after_exactly_so_many_failures(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    for limit in 0..=12u32 {
        bench.define("q", retrying(limit, 1)).await;
        let id = bench.push(message("a")).await;
        let mut failures = 0;
        loop {
            let delivery = bench.lease_one().await;
            assert_eq!(delivery.message.id, id);
            // What was given back or ran out in between does not count.
            if failures % 2 == 1 && delivery.counters.releases == 0 {
                bench.apply(&delivery, Decision::Release { after: Duration::ZERO }).await;
                continue;
            }
            let decision = bench.fail(&delivery, Failure::transient("no")).await;
            failures += 1;
            bench.advance(1).await;
            if matches!(decision, Decision::Quarantine { .. }) {
                break;
            }
        }
        assert_eq!(failures, limit.max(1), "with a limit of {limit}");
        assert_eq!(bench.view(id).await.status, Status::Dead);
        assert!(bench.lease(1).await.is_empty());
    }
}

/// A3: force poison at once, whatever the count.
pub async fn poison_said_by_the_handler_needs_no_count(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(100, 1)).await;
    let id = bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    bench.fail(&delivery, Failure::poison("amount is negative").code("E42")).await;
    let view = bench.view(id).await;
    let dead = view.dead.unwrap_or_else(|| panic!("not dead"));
    assert_eq!((dead.set_aside, dead.kind), (SetAside::NonRetryableError, Kind::Poison));
    assert_eq!(
        view.history[0].failure.as_ref().and_then(|failure| failure.code.clone()).as_deref(),
        Some("E42")
    );
}

/// B1.
pub async fn the_history_tells_every_attempt_that_did_not_simply_succeed(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a")).await;
    let started = bench.now();
    let delivery = bench.lease_one().await;
    bench.advance(2).await;
    let mut settlement =
        Settlement::new(delivery.token(), retry(0, Failure::transient("no route").code("E1")));
    settlement.ran = Some(Duration::from_millis(1500));
    settlement.output = Some("connecting…\n".to_owned());
    assert_eq!(bench.settle(settlement).await, Settled::Applied);
    let again = bench.lease_one().await;
    bench.apply(&again, Decision::Release { after: Duration::ZERO }).await;
    let history = bench.view(id).await.history;
    assert_eq!(history.len(), 2);
    let first = &history[0];
    assert_eq!((first.number, first.end, first.worker.as_str()), (1, AttemptEnd::Failed, "host/1/worker"));
    assert_eq!((first.started_at, first.ended_at), (started, started.plus(seconds(2))));
    assert_eq!(first.ran, Some(Duration::from_millis(1500)));
    assert_eq!(first.output.as_deref(), Some("connecting…\n"));
    let failure = first.failure.as_ref().unwrap_or_else(|| panic!("no failure"));
    assert_eq!((failure.reason, failure.error.as_str()), (Reason::DependencyFailure, "no route"));
    assert_eq!((history[1].number, history[1].end, &history[1].failure), (2, AttemptEnd::Released, &None));
}

/// I4.
pub async fn every_delivery_after_the_first_has_a_recorded_cause(f: &mut dyn Fixture) {
    // An expiry counts as a delivery, so the second failure, at the fourth that counts, is the last.
    let bench = Bench::with(f, retrying(4, 1)).await;
    let id = bench.push(message("a")).await;
    let check = async |bench: &Bench<'_>, leased: bool| {
        let view = bench.view(id).await;
        let deliveries = view.counters.attempt_number() as usize;
        let causes = view.history.iter().filter(|row| row.end != AttemptEnd::Quarantined).count();
        let expected = if leased || view.status == Status::Dead { 1 + causes } else { causes };
        assert_eq!(deliveries, expected, "{:?}", view.history);
        let c = view.counters;
        let ended = c.failures + c.crashes + c.releases + c.expiries;
        assert_eq!(c.deliveries, ended + u32::from(leased), "{c:?}");
    };
    for round in 0..2 {
        for step in 0..6 {
            let delivery = bench.lease_one().await;
            assert_eq!(delivery.cause.is_none(), (round, step) == (0, 0));
            check(&bench, true).await;
            match step {
                0 => bench.apply(&delivery, Decision::Release { after: Duration::ZERO }).await,
                1 => bench.advance(30).await,
                2 => drop(good(bench.store().process_died(bench.f.process(), "kill".into()).await)),
                3 => bench.apply(&delivery, Decision::Redeliver).await,
                _ => drop(bench.fail(&delivery, Failure::transient("no")).await),
            }
            check(&bench, false).await;
            bench.advance(1).await;
        }
        assert_eq!(bench.view(id).await.status, Status::Dead);
        bench.replay(id).await;
    }
}

/// Rule 15.
pub async fn an_effect_of_another_store_is_an_error_and_settles_nothing(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push_all(vec![message("a"), message("b")]).await;
    let held = bench.lease(2).await;
    let mut foreign = Settlement::complete(held[1].token());
    foreign.effect = Some(Effect::new("of no store at all"));
    let settlements = vec![Settlement::complete(held[0].token()), foreign];
    assert_eq!(code(bench.store().exchange(Exchange::settle(settlements)).await), "SB0015");
    assert_eq!(bench.stats().await.active, 2, "the exchange is one transaction");
    bench.done(&held[0]).await;
    bench.done(&held[1]).await;
}

/// Rule 15.
pub async fn a_failed_effect_leaves_the_others_of_its_batch_alone(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push_all(vec![message("a"), message("b"), message("c")]).await;
    let held = bench.lease(3).await;
    let settlements = ["first", "fail", "third"].iter().zip(&held).map(|(key, delivery)| {
        let mut settlement = Settlement::complete(delivery.token());
        settlement.effect = Some(bench.f.effect(key));
        settlement
    });
    let exchanged = good(bench.store().exchange(Exchange::settle(settlements.collect())).await);
    assert_eq!(exchanged.settled[0], Settled::Applied);
    assert!(matches!(&exchanged.settled[1], Settled::EffectFailed { error } if !error.is_empty()));
    assert_eq!(exchanged.settled[2], Settled::Applied);
    assert_eq!(bench.f.effects(), ["first", "third"]);
    // It is still leased and can be settled as failed.
    bench.fail(&held[1], Failure::transient("the write failed")).await;
    assert_eq!(bench.stats().await.dead, 1);
}
