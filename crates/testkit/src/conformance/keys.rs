//! Idempotency keys (rules 4 to 6, A10).

use sickbay_core::message::Priority;
use sickbay_core::port::{Exchange, Pushed, Renewal, Replay, Replayed};
use sickbay_core::settlement::Settled;
use sickbay_core::{Failure, QueuePolicy, Settlement};

use super::bench::{Bench, good, key, message, queue, retrying, seconds, stream};
use crate::fixture::Fixture;

/// Rule 4.
pub async fn two_of_one_key_in_one_batch_are_one_message(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let pushed = bench.push_all(vec![message("a").key(key("k")), message("b").key(key("k"))]).await;
    assert_eq!(pushed[1], Pushed::Duplicate(pushed[0].id()));
    let stats = bench.stats().await;
    assert_eq!((stats.pushed, stats.pending, stats.duplicates), (1, 1, 1));
}

/// Rule 4.
pub async fn a_key_stands_while_its_owner_waits_for_a_retry(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(3, 60)).await;
    let id = bench.push(message("a").key(key("k"))).await;
    let delivery = bench.lease_one().await;
    bench.fail(&delivery, Failure::transient("later")).await;
    assert_eq!(bench.push_all(vec![message("b").key(key("k"))]).await, [Pushed::Duplicate(id)]);
}

/// Rule 5.
pub async fn a_window_of_zero_forgets_a_key_at_once(f: &mut dyn Fixture) {
    let bench = Bench::with(f, QueuePolicy { key_window: seconds(0), ..QueuePolicy::default() }).await;
    bench.push(message("a").key(key("k"))).await;
    let delivery = bench.lease_one().await;
    bench.done(&delivery).await;
    assert!(!good(bench.store().is_done(&queue("q"), &key("k")).await));
    bench.push(message("b").key(key("k"))).await;
}

/// Rule 5.
pub async fn a_key_is_done_from_completion_until_its_window_has_passed(f: &mut dyn Fixture) {
    let bench = Bench::with(f, QueuePolicy { key_window: seconds(60), ..QueuePolicy::default() }).await;
    let is_done = async |bench: &Bench<'_>| good(bench.store().is_done(&queue("q"), &key("k")).await);
    assert!(!is_done(&bench).await);
    bench.push(message("a").key(key("k"))).await;
    let delivery = bench.lease_one().await;
    assert!(!is_done(&bench).await);
    bench.done(&delivery).await;
    assert!(is_done(&bench).await);
    bench.advance(59).await;
    assert!(is_done(&bench).await);
    bench.advance(1).await;
    assert!(!is_done(&bench).await);
}

/// Rules 5 and 13: many are settled at once, of several kinds, one of them too late.
pub async fn of_many_settled_at_once_the_keys_of_those_that_took_effect_are_done(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let messages = [("a", Some("k1")), ("b", Some("k2")), ("c", None), ("d", Some("k3"))];
    let keyed = |(text, name): (&'static str, Option<&str>)| match name {
        Some(name) => message(text).key(key(name)),
        None => message(text),
    };
    bench.push_all(messages.into_iter().map(keyed).collect()).await;
    let held = bench.lease(4).await;
    let kept = [0, 2, 3].map(|at| held[at].token()).to_vec();
    assert!(good(bench.store().renew(Renewal { tokens: kept, lease: seconds(600) }).await).is_empty());
    bench.advance(60).await;
    let all = held.iter().map(|delivery| Settlement::complete(delivery.token())).collect();
    let settled = good(bench.store().exchange(Exchange::settle(all)).await).settled;
    let lost = |settled: &Settled| *settled == Settled::LeaseLost;
    assert_eq!(settled.iter().map(lost).collect::<Vec<_>>(), [false, true, false, false]);
    for (name, done) in [("k1", true), ("k2", false), ("k3", true)] {
        assert_eq!(good(bench.store().is_done(&queue("q"), &key(name)).await), done, "{name}");
        let again = bench.push_all(vec![message("again").key(key(name))]).await;
        assert!(matches!(again[0], Pushed::Duplicate(_)), "{name}");
    }
}

/// Rule 4: some of a batch are new, some are known, some are known since this very batch.
pub async fn a_batch_may_mix_new_keys_with_known_ones(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let known = bench.push(message("known").key(key("k2"))).await;
    let batch = vec![
        message("a").key(key("k3")),
        message("b").key(key("k2")),
        message("c"),
        message("d").key(key("k1")),
        message("e").key(key("k3")),
    ];
    let pushed = bench.push_all(batch).await;
    assert_eq!(pushed[1], Pushed::Duplicate(known));
    assert_eq!(pushed[4], Pushed::Duplicate(pushed[0].id()));
    let new = [pushed[0], pushed[2], pushed[3]];
    assert!(new.iter().all(|pushed| matches!(pushed, Pushed::New(_))), "{new:?}");
    assert!(new.is_sorted_by_key(|pushed| pushed.id()), "{new:?}");
    let order: Vec<_> = bench.lease(10).await.into_iter().map(|d| d.message.payload).collect();
    assert_eq!(order, ["known", "a", "c", "d"]);
}

/// Rule 5.
pub async fn a_done_key_survives_a_crash(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a").key(key("k"))).await;
    let delivery = bench.lease_one().await;
    bench.done(&delivery).await;
    bench.f.crash();
    assert_eq!(bench.push_all(vec![message("b").key(key("k"))]).await, [Pushed::Duplicate(id)]);
}

/// Rule 6: seed 003's duplicate replay.
pub async fn a_replayed_message_whose_key_is_done_is_completed_unrun(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let old = bench.dead(message("a").key(key("k"))).await;
    bench.push(message("b").key(key("k"))).await;
    let delivery = bench.lease_one().await;
    bench.done(&delivery).await;
    bench.replay(old).await;
    assert!(bench.lease(1).await.is_empty());
    assert!(bench.find(old).await.is_none());
    let stats = bench.stats().await;
    assert_eq!((stats.completed, stats.duplicates), (2, 1));
}

/// Rules 6 and 9: the claim completes a replayed head whose key is done, and the more urgent one behind it is next.
pub async fn what_a_claim_makes_the_first_of_its_stream_comes_in_its_turn(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let head = bench.dead(message("head").key(key("k")).stream(stream("s"))).await;
    bench.push(message("owner").key(key("k"))).await;
    let owner = bench.lease_one().await;
    bench.done(&owner).await;
    let urgent = Priority::new(9).unwrap_or_default();
    let follower = bench.push(message("follower").stream(stream("s")).priority(urgent)).await;
    bench.replay(head).await;
    bench.advance(1).await;
    let plain = bench.push(message("plain")).await;
    assert_eq!(bench.lease_ids(1).await, [follower]);
    assert_eq!(bench.lease_ids(1).await, [plain]);
}

/// Rule 6.
pub async fn a_message_that_waits_for_its_key_costs_the_claim_nothing(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let old = bench.dead(message("a").key(key("k"))).await;
    let owner = bench.push(message("b").key(key("k"))).await;
    let other = bench.push(message("c")).await;
    bench.replay(old).await;
    assert_eq!(bench.lease_ids(9).await, [owner, other]);
    let view = bench.view(old).await;
    assert_eq!(view.counters.deliveries, 0, "waiting for a key was counted");
    assert_eq!(view.due_at, Some(bench.now().plus(seconds(1))));
}

/// Rule 6.
pub async fn a_key_whose_owner_died_goes_back_to_the_replayed_message(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let old = bench.dead(message("a").key(key("k"))).await;
    let new = bench.dead(message("b").key(key("k"))).await;
    bench.replay(old).await;
    let delivery = bench.lease_one().await;
    assert_eq!(delivery.message.id, old);
    assert_eq!(bench.push_all(vec![message("c").key(key("k"))]).await, [Pushed::Duplicate(old)]);
    bench.done(&delivery).await;
    bench.replay(new).await;
    assert!(bench.lease(1).await.is_empty(), "the key is done");
    assert!(bench.find(new).await.is_none());
}

/// Rule 15, A10.
pub async fn effect_key_and_acknowledgement_commit_together_or_not_at_all(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push(message("a").key(key("k"))).await;
    let delivery = bench.lease_one().await;
    let mut settlement = Settlement::complete(delivery.token());
    settlement.effect = Some(bench.f.effect("fail"));
    let answer = bench.settle(settlement).await;
    assert!(matches!(answer, Settled::EffectFailed { .. }), "{answer:?}");
    assert!(bench.f.effects().is_empty());
    assert!(!good(bench.store().is_done(&queue("q"), &key("k")).await));
    let mut settlement = Settlement::complete(delivery.token());
    settlement.effect = Some(bench.f.effect("row"));
    assert_eq!(bench.settle(settlement).await, Settled::Applied);
    assert_eq!(bench.f.effects(), ["row"]);
    assert!(good(bench.store().is_done(&queue("q"), &key("k")).await));
}

/// Rule 6: a message that was sent to another queue and back owns its key when it is claimed, and not before.
pub async fn a_key_is_left_behind_by_a_message_that_is_sent_to_another_queue(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.define("r", QueuePolicy::default()).await;
    let id = bench.dead(message("a").key(key("k"))).await;
    for name in ["r", "q"] {
        let replay = Replay { queue: Some(queue(name)), ..Replay::raw(id) };
        assert_eq!(good(bench.store().replay(vec![replay]).await), [Replayed::Done]);
        if name == "r" {
            good(bench.store().dead_letter(vec![id], "and back".into()).await);
        }
    }
    let pushed = bench.push_all(vec![message("b").key(key("k"))]).await;
    assert!(matches!(pushed[..], [Pushed::New(_)]), "{pushed:?}");
}
