//! Operators' acts (rules 26 to 29; B2, B9, B10).

use std::time::Duration;

use bytes::Bytes;
use sickbay_core::decide::{Decision, SetAside};
use sickbay_core::delivery::Cause;
use sickbay_core::message::Status;
use sickbay_core::port::{Replay, Replayed};
use sickbay_core::quarantine::{AttemptEnd, QuarantineFilter};
use sickbay_core::settlement::Settled;
use sickbay_core::{Failure, MessageId, QueuePolicy, Reason, Settlement};

use super::bench::{Bench, code, good, key, message, process, queue, retrying, seconds};
use crate::fixture::Fixture;

fn nobody() -> MessageId {
    MessageId::from_number(4_711).unwrap_or_else(|| panic!("no number"))
}

fn refused(answer: &Replayed) -> bool {
    matches!(answer, Replayed::Refused { why } if !why.is_empty())
}

/// Rules 12 and 26, I9.
pub async fn a_dead_letter_whose_bytes_changed_is_not_sent_back(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let (bad, whole) = (bench.dead(message("a")).await, bench.dead(message("b")).await);
    bench.f.damage(bad);
    let replay =
        |id, payload: Option<&'static str>| Replay { id, queue: None, payload: payload.map(Bytes::from) };
    let wishes = vec![replay(bad, None), replay(whole, None), replay(bad, Some("c"))];
    let answers = good(bench.store().replay(wishes).await);
    assert!(refused(&answers[0]) && refused(&answers[2]), "{answers:?}");
    assert_eq!(answers[1], Replayed::Done);
    assert_eq!(bench.view(bad).await.status, Status::Dead);
    assert_eq!(bench.lease_ids(9).await, [whole]);
}

/// Rule 26, B2.
pub async fn a_replayed_message_begins_a_new_life_with_its_old_history(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(2, 1)).await;
    let id = bench.push(message("a")).await;
    for _ in 0..2 {
        let delivery = bench.lease_one().await;
        bench.fail(&delivery, Failure::transient("no")).await;
        bench.advance(1).await;
    }
    assert_eq!(bench.replay(id).await, Replayed::Done);
    let view = bench.view(id).await;
    assert_eq!((view.status, view.due_at, view.dead.is_none()), (Status::Pending, Some(bench.now()), true));
    let c = view.counters;
    assert_eq!((c.deliveries, c.failures, c.replays, c.earlier), (0, 0, 1, 2));
    let ends: Vec<_> = view.history.iter().map(|row| row.end).collect();
    assert_eq!(ends, [AttemptEnd::Failed, AttemptEnd::Quarantined, AttemptEnd::Replayed]);
    let delivery = bench.lease_one().await;
    assert_eq!((delivery.cause, delivery.counters.attempt_number()), (Some(Cause::Replayed), 3));
    assert_eq!(delivery.message.id, id);
    bench.done(&delivery).await;
    assert!(bench.find(id).await.is_none());
}

/// Rule 26, seed 002: a retry of a pending item is an error.
pub async fn only_dead_letters_can_be_replayed(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(3, 60)).await;
    let id = bench.push(message("a")).await;
    assert!(refused(&bench.replay(id).await), "pending");
    let delivery = bench.lease_one().await;
    assert!(refused(&bench.replay(id).await), "active");
    bench.fail(&delivery, Failure::transient("no")).await;
    assert!(refused(&bench.replay(id).await), "failed");
    let _ = bench.store().dead_letter(vec![id], "why".into()).await;
    let _ = bench.store().discard(vec![id], "why".into()).await;
    assert!(refused(&bench.replay(id).await), "discarded");
    assert_eq!(bench.replay(nobody()).await, Replayed::NotFound);
    assert_eq!(bench.stats().await.replayed, 0);
}

/// Rule 26, seed 003: the fix-up.
pub async fn a_replay_with_other_bytes_keeps_the_original_ones(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.dead(message("amount: -5")).await;
    for fixed in ["amount: 500", "amount: 5"] {
        let replay = Replay { payload: Some(Bytes::from(fixed)), ..Replay::raw(id) };
        assert_eq!(good(bench.store().replay(vec![replay]).await), [Replayed::Done]);
        let delivery = bench.lease_one().await;
        assert_eq!(delivery.message.payload, fixed);
        bench.fail(&delivery, Failure::poison("still not")).await;
        let view = bench.view(id).await;
        assert_eq!(view.original_payload.as_deref(), Some(&b"amount: -5"[..]));
        assert_eq!(view.message.payload, fixed);
    }
}

/// Rule 26, B5.
pub async fn a_replay_to_another_queue_leaves_both_queues_adding_up(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.define("r", QueuePolicy::default()).await;
    let id = bench.dead(message("a")).await;
    let replay = Replay { queue: Some(queue("r")), ..Replay::raw(id) };
    assert_eq!(good(bench.store().replay(vec![replay]).await), [Replayed::Done]);
    assert!(bench.lease(1).await.is_empty());
    let mut claim = bench.claim(1);
    claim.queue = queue("r");
    let delivery = bench.take(claim).await.remove(0);
    assert_eq!((delivery.message.id, delivery.message.queue.as_str()), (id, "r"));
    assert!(bench.stats().await.adds_up());
    assert!(good(bench.store().stats(&queue("r")).await).adds_up());
}

/// One transaction: a batch that cannot be carried out changes nothing.
pub async fn a_replay_to_an_unknown_queue_changes_nothing(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.dead(message("a")).await;
    let bad = Replay { queue: Some(queue("nowhere")), ..Replay::raw(id) };
    assert_eq!(code(bench.store().replay(vec![Replay::raw(id), bad]).await), "SB0001");
    assert_eq!(bench.view(id).await.status, Status::Dead);
}

/// The answers of a batch are in the order of the wishes, and one id twice is done once.
pub async fn a_batch_of_acts_answers_each_wish_in_order(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let dead = bench.dead(message("a")).await;
    let live = bench.push(message("b")).await;
    let wishes = [live, dead, dead, nobody()].map(Replay::raw).to_vec();
    let answers = good(bench.store().replay(wishes).await);
    assert!(refused(&answers[0]) && refused(&answers[2]), "{answers:?}");
    assert_eq!((&answers[1], &answers[3]), (&Replayed::Done, &Replayed::NotFound));
    assert_eq!(bench.stats().await.replayed, 1);
}

/// Rule 27, B10.
pub async fn dead_lettering_by_hand_takes_the_message_from_its_holder(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let held = bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    let waiting = bench.push(message("b").delay(seconds(9))).await;
    let answers =
        good(bench.store().dead_letter(vec![held, waiting, nobody()], "violates policy XYZ".into()).await);
    assert_eq!(answers, [Replayed::Done, Replayed::Done, Replayed::NotFound]);
    assert_eq!(bench.settle(Settlement::complete(delivery.token())).await, Settled::LeaseLost);
    for id in [held, waiting] {
        let view = bench.view(id).await;
        let dead = view.dead.unwrap_or_else(|| panic!("not dead"));
        assert_eq!((dead.set_aside, dead.reason), (SetAside::Operator, Reason::Operator));
        assert_eq!(dead.error, "violates policy XYZ");
        assert_eq!(view.due_at, None);
    }
    assert_eq!(bench.view(held).await.last_delivery, Some(delivery.token().to_string()));
    assert!(refused(&good(bench.store().dead_letter(vec![held], "again".into()).await)[0]));
}

/// Rule 27: whatever happened since.
pub async fn a_dead_letter_names_its_last_delivery(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let retried = bench.push(message("a")).await;
    let never = bench.push(message("b").delay(seconds(99))).await;
    let delivery = bench.lease_one().await;
    let last = Some(delivery.token().to_string());
    bench.fail(&delivery, Failure::transient("later")).await;
    bench.f.reopen();
    good(bench.store().dead_letter(vec![retried, never], "not now".into()).await);
    assert_eq!(bench.view(retried).await.last_delivery, last);
    assert_eq!(bench.view(never).await.last_delivery, None);
    good(bench.store().replay(vec![Replay::raw(retried)]).await);
    good(bench.store().dead_letter(vec![retried], "nor now".into()).await);
    assert_eq!(bench.view(retried).await.last_delivery, last, "nobody got it since");
}

/// Rule 28, B9.
pub async fn discarding_hides_restoring_brings_back_purging_is_for_good(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let first = bench.dead(message("a")).await;
    let second = bench.dead(message("b")).await;
    bench.advance(1).await;
    let answers = good(bench.store().discard(vec![first, second, nobody()], "known bug".into()).await);
    assert_eq!(answers, [Replayed::Done, Replayed::Done, Replayed::NotFound]);
    assert!(bench.quarantine(QuarantineFilter::default()).await.is_empty());
    let hidden = bench.quarantine(QuarantineFilter { discarded: true, ..Default::default() }).await;
    assert_eq!(hidden.len(), 2);
    assert_eq!(hidden[0].discarded_at, Some(bench.now()));
    let view = bench.view(first).await;
    assert_eq!((view.status, view.history.len()), (Status::Discarded, 1));
    assert_eq!(good(bench.store().restore(vec![first]).await), [Replayed::Done]);
    assert!(refused(&good(bench.store().restore(vec![first]).await)[0]));
    assert_eq!(good(bench.store().purge(&queue("q"), Duration::ZERO, 10).await), 1);
    assert!(bench.find(second).await.is_none());
    let stats = bench.stats().await;
    assert_eq!((stats.dead, stats.discarded, stats.removed), (1, 0, 1));
    assert_eq!(bench.replay(first).await, Replayed::Done);
}

/// Rule 28.
pub async fn a_purge_takes_the_oldest_first_and_no_more_than_asked(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(bench.dead(message("a")).await);
    }
    for id in ids.iter().rev() {
        bench.advance(1).await;
        let _ = bench.store().discard(vec![*id], "old".into()).await;
    }
    assert_eq!(good(bench.store().purge(&queue("q"), Duration::ZERO, 0).await), 0);
    assert_eq!(good(bench.store().purge(&queue("q"), Duration::ZERO, 3).await), 3);
    assert!(bench.find(ids[0]).await.is_some(), "the last one discarded is left");
    assert_eq!(good(bench.store().purge(&queue("q"), Duration::ZERO, 3).await), 1);
}

/// Rule 28.
pub async fn a_purge_spares_what_was_discarded_too_recently(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let (old, young) = (bench.dead(message("a")).await, bench.dead(message("b")).await);
    let kept = bench.dead(message("c")).await;
    let purge = async |bench: &Bench<'_>, age| good(bench.store().purge(&queue("q"), age, 10).await);
    let _ = good(bench.store().discard(vec![old], "old".into()).await);
    bench.advance(10).await;
    let _ = good(bench.store().discard(vec![young], "young".into()).await);
    bench.advance(20).await;
    assert_eq!(purge(&bench, seconds(31)).await, 0);
    assert_eq!(purge(&bench, Duration::MAX).await, 0, "an endless age keeps everything");
    assert_eq!(purge(&bench, seconds(30)).await, 1);
    assert!(bench.find(old).await.is_none());
    assert_eq!(bench.view(young).await.status, Status::Discarded);
    bench.f.crash();
    assert_eq!(purge(&bench, seconds(20)).await, 1, "the time of the discard outlives a crash");
    assert_eq!(purge(&bench, Duration::ZERO).await, 0);
    assert_eq!(bench.view(kept).await.status, Status::Dead, "what was not discarded is never purged");
}

/// Rule 29.
pub async fn only_what_waits_can_be_cancelled(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(3, 60)).await;
    let cancel = async |bench: &Bench<'_>, id| good(bench.store().cancel(vec![id]).await).remove(0);
    let id = bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    assert!(refused(&cancel(&bench, id).await), "active");
    bench.fail(&delivery, Failure::transient("no")).await;
    assert_eq!(cancel(&bench, id).await, Replayed::Done, "waiting for its retry");
    assert_eq!(cancel(&bench, id).await, Replayed::NotFound);
    let dead = bench.dead(message("b")).await;
    assert!(refused(&cancel(&bench, dead).await), "dead");
    assert_eq!(bench.stats().await.removed, 1);
}

/// Rule 29.
pub async fn hastening_makes_due_what_waits_for_its_time(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(3, 60)).await;
    let hasten = async |bench: &Bench<'_>, id| good(bench.store().hasten(vec![id]).await).remove(0);
    let id = bench.push(message("a").delay(seconds(60))).await;
    assert_eq!(hasten(&bench, id).await, Replayed::Done);
    assert_eq!(bench.view(id).await.due_at, Some(bench.now()));
    assert!(refused(&hasten(&bench, id).await), "due already");
    let delivery = bench.lease_one().await;
    assert!(refused(&hasten(&bench, id).await), "leased");
    bench.fail(&delivery, Failure::transient("no")).await;
    assert_eq!(hasten(&bench, id).await, Replayed::Done);
    let again = bench.lease_one().await;
    assert_eq!((again.counters.failures, again.cause), (1, Some(Cause::Failed)), "its counters stay");
    assert_eq!(hasten(&bench, nobody()).await, Replayed::NotFound);
}

/// Rule 33, B12.
pub async fn resetting_gives_a_waiting_message_its_attempts_back(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(2, 60)).await;
    let reset = async |bench: &Bench<'_>, id| good(bench.store().reset_attempts(vec![id]).await).remove(0);
    let id = bench.push(message("a").key(key("k"))).await;
    assert!(refused(&reset(&bench, id).await), "never tried");
    let delivery = bench.lease_one().await;
    assert!(refused(&reset(&bench, id).await), "leased");
    bench.fail(&delivery, Failure::transient("no")).await;
    let due_at = bench.view(id).await.due_at;
    assert_eq!(bench.stats().await.poison_candidates, 1);
    assert_eq!(reset(&bench, id).await, Replayed::Done);
    let view = bench.view(id).await;
    assert_eq!((view.status, view.due_at), (Status::Scheduled, due_at), "its schedule stays");
    let c = view.counters;
    assert_eq!((c.deliveries, c.failures, c.charges, c.replays, c.earlier), (0, 0, 0, 0, 1));
    let ends: Vec<_> = view.history.iter().map(|row| (row.number, row.end)).collect();
    assert_eq!(ends, [(1, AttemptEnd::Failed), (1, AttemptEnd::Reset)], "its history stays");
    let stats = bench.stats().await;
    assert_eq!((stats.failed, stats.scheduled, stats.poison_candidates), (0, 1, 0));
    assert!(refused(&reset(&bench, id).await), "there is nothing left to give back");
    bench.f.crash();
    bench.advance(60).await;
    let delivery = bench.lease_one().await;
    assert_eq!((delivery.counters.deliveries, delivery.counters.attempt_number()), (1, 2));
    assert!(matches!(bench.fail(&delivery, Failure::transient("no")).await, Decision::Retry { .. }));
    bench.advance(60).await;
    let delivery = bench.lease_one().await;
    assert!(matches!(bench.fail(&delivery, Failure::transient("no")).await, Decision::Quarantine { .. }));
    assert!(refused(&reset(&bench, id).await), "dead");
    assert_eq!(reset(&bench, nobody()).await, Replayed::NotFound);
    assert!(bench.stats().await.adds_up());
}

/// Rule 33.
pub async fn a_message_that_is_due_again_keeps_its_turn_when_it_is_reset(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(5, 0)).await;
    let ids: Vec<_> =
        bench.push_all(vec![message("a"), message("b")]).await.iter().map(|pushed| pushed.id()).collect();
    for delivery in bench.lease(2).await {
        bench.fail(&delivery, Failure::transient("no")).await;
    }
    let answers = good(bench.store().reset_attempts(vec![ids[1], nobody(), ids[0]]).await);
    assert_eq!(answers, [Replayed::Done, Replayed::NotFound, Replayed::Done]);
    let again = bench.lease(9).await;
    assert_eq!(again.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), ids);
    assert!(again.iter().all(|delivery| delivery.counters.failures == 0));
    assert!(bench.lease(9).await.is_empty(), "each of them once");
}

/// Rules 18 and 33.
pub async fn a_reset_suspect_is_still_a_suspect(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(5, 0)).await;
    let id = bench.push(message("a")).await;
    let delivery = bench.take(bench.claim_as(process(2), 1)).await.remove(0);
    good(bench.store().process_died(process(2), "killed by signal 9".to_owned()).await);
    assert_eq!(bench.settle(Settlement::complete(delivery.token())).await, Settled::LeaseLost);
    assert_eq!(good(bench.store().reset_attempts(vec![id]).await), [Replayed::Done]);
    let view = bench.view(id).await;
    assert_eq!((view.counters.crashes, view.counters.charges, view.suspect), (0, 0, true));
    bench.push(message("b")).await;
    let held = bench.lease(9).await;
    assert_eq!((held.len(), held[0].message.id, held[0].suspect), (1, id, true), "it runs alone");
}

/// Decision 15: policy is read when it is applied.
pub async fn a_changed_policy_is_in_force_at_once_and_after_a_crash(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.define("q", retrying(7, 3)).await;
    assert_eq!(good(bench.store().policy(&queue("q")).await).retry.attempts, 7);
    bench.f.crash();
    assert_eq!(*good(bench.store().policy(&queue("q")).await), retrying(7, 3));
    bench.define("another", QueuePolicy::default()).await;
    let names: Vec<_> = good(bench.store().queues().await).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [queue("another"), queue("q")], "by name");
}
