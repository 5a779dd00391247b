//! Leases run out, and are renewed (rule 16, A1).

use sickbay_core::Settlement;
use sickbay_core::delivery::Cause;
use sickbay_core::port::Renewal;
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::settlement::Settled;

use super::bench::{Bench, good, message, seconds};
use crate::fixture::Fixture;

/// Rule 16.
pub async fn a_lease_that_ran_out_brings_the_message_back_counted(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a")).await;
    let due_at = bench.view(id).await.due_at;
    bench.lease_one().await;
    bench.f.clock().advance(std::time::Duration::from_millis(29_999));
    assert!(bench.lease(1).await.is_empty());
    bench.f.clock().advance(std::time::Duration::from_millis(1));
    good(bench.store().sweep().await);
    let view = bench.view(id).await;
    assert_eq!((view.counters.expiries, view.due_at), (1, due_at), "it keeps its place");
    assert_eq!(view.history[0].end, AttemptEnd::LeaseExpired);
    let again = bench.lease_one().await;
    assert_eq!((again.cause, again.suspect), (Some(Cause::LeaseExpired), false));
}

/// Rule 16: the time decides, not who looks first.
pub async fn a_settlement_after_the_time_is_refused_even_if_nobody_swept(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    bench.f.clock().advance(seconds(30));
    assert_eq!(bench.settle(Settlement::complete(delivery.token())).await, Settled::LeaseLost);
    assert_eq!(bench.stats().await.completed, 0);
}

/// Rule 16: stores do it by themselves.
pub async fn a_claim_finds_what_ran_out_without_a_sweep(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a")).await;
    bench.lease_one().await;
    bench.f.clock().advance(seconds(30));
    assert_eq!(bench.lease_ids(1).await, [id]);
}

/// A1.
pub async fn a_renewed_lease_holds_from_now(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    for _ in 0..5 {
        bench.advance(29).await;
        let renewal = Renewal { tokens: vec![delivery.token()], lease: seconds(30) };
        assert!(good(bench.store().renew(renewal).await).is_empty());
    }
    bench.advance(29).await;
    bench.done(&delivery).await;
}

/// A1.
pub async fn a_renewal_names_exactly_the_leases_that_are_lost(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push_all(vec![message("a"), message("b"), message("c")]).await;
    let held = bench.lease(3).await;
    bench.done(&held[0]).await;
    let _ = bench.store().dead_letter(vec![held[2].message.id], "why not".into()).await;
    let tokens = held.iter().map(sickbay_core::Delivery::token).collect();
    let lost = good(bench.store().renew(Renewal { tokens, lease: seconds(60) }).await);
    assert_eq!(lost, [held[0].token(), held[2].token()]);
    bench.advance(59).await;
    bench.done(&held[1]).await;
}

/// A lease that was renewed for some of a claim only runs out for the others.
pub async fn leases_of_one_claim_run_out_each_at_its_own_time(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push_all(vec![message("a"), message("b")]).await;
    let held = bench.lease(2).await;
    let renewal = Renewal { tokens: vec![held[1].token()], lease: seconds(100) };
    assert!(good(bench.store().renew(renewal).await).is_empty());
    bench.advance(30).await;
    assert_eq!(bench.lease_ids(9).await, [held[0].message.id]);
    bench.advance(69).await;
    bench.done(&held[1]).await;
}

/// Rule 16.
pub async fn a_renewal_never_shortens_a_lease(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    let renewal = Renewal { tokens: vec![delivery.token()], lease: seconds(1) };
    assert!(good(bench.store().renew(renewal).await).is_empty());
    bench.advance(29).await;
    bench.done(&delivery).await;
}

/// A token that is there twice is renewed once, and nobody else with it.
pub async fn a_renewal_that_names_a_token_twice_renews_it_alone(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push_all(vec![message("a"), message("b"), message("c")]).await;
    let held = bench.lease(3).await;
    let twice = vec![held[0].token(), held[0].token()];
    assert!(good(bench.store().renew(Renewal { tokens: twice, lease: seconds(100) }).await).is_empty());
    bench.advance(30).await;
    assert_eq!(bench.lease_ids(9).await, [held[1].message.id, held[2].message.id]);
    bench.done(&held[0]).await;
}
