//! Messages of brokers (rule 7).

use std::time::Duration;

use sickbay_core::decide::{Decision, SetAside};
use sickbay_core::delivery::{Cause, Counters};
use sickbay_core::message::Status;
use sickbay_core::port::{Adoption, ORIGIN_WINDOW, Pushed};
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::{Failure, NewMessage, Stages};

use super::bench::{Bench, code, good, message, queue, retry, retrying, seconds};
use crate::fixture::Fixture;

fn adoption(bench: &Bench<'_>, message: NewMessage, origin: &str, decision: Decision) -> Adoption {
    Adoption {
        message,
        origin: origin.to_owned(),
        counters: Counters { deliveries: 2, releases: 1, ..Counters::default() },
        started_at: bench.now(),
        worker: "host/1/guard".to_owned(),
        decision,
        signature: None,
        stages: Stages::STORED,
    }
}

/// Rule 7.
pub async fn an_origin_is_adopted_once_also_after_a_crash_and_when_it_is_done(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(5, 1)).await;
    let adopt = async |bench: &Bench<'_>| {
        let one = adoption(bench, message("a"), "rabbit/7", retry(0, Failure::transient("no")));
        good(bench.store().adopt(vec![one]).await).remove(0)
    };
    let Pushed::New(id) = adopt(&bench).await else { panic!("not new") };
    assert_eq!(adopt(&bench).await, Pushed::Duplicate(id));
    bench.f.crash();
    assert_eq!(adopt(&bench).await, Pushed::Duplicate(id));
    let delivery = bench.lease_one().await;
    bench.done(&delivery).await;
    assert_eq!(adopt(&bench).await, Pushed::Duplicate(id));
    assert_eq!(bench.stats().await.pushed, 1);
}

/// Rule 7: what is remembered for ever grows for ever.
pub async fn an_origin_is_forgotten_after_its_window_and_not_before(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(5, 1)).await;
    let adopt = async |bench: &Bench<'_>| {
        let one = adoption(bench, message("a"), "rabbit/7", retry(0, Failure::transient("no")));
        good(bench.store().adopt(vec![one]).await).remove(0)
    };
    let Pushed::New(first) = adopt(&bench).await else { panic!("not new") };
    bench.advance(ORIGIN_WINDOW.as_secs() - 1).await;
    assert_eq!(adopt(&bench).await, Pushed::Duplicate(first));
    bench.advance(1).await;
    let Pushed::New(second) = adopt(&bench).await else { panic!("the origin is still known") };
    assert_eq!(adopt(&bench).await, Pushed::Duplicate(second));
}

/// An adopted message has had its first attempt.
pub async fn an_adopted_failure_goes_on_where_the_broker_stopped(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(5, 1)).await;
    let one = adoption(&bench, message("a"), "o", retry(60, Failure::transient("no route")));
    let id = good(bench.store().adopt(vec![one]).await)[0].id();
    let view = bench.view(id).await;
    assert_eq!((view.status, view.due_at), (Status::Failed, Some(bench.now().plus(seconds(60)))));
    assert_eq!((view.counters.deliveries, view.counters.failures), (2, 1));
    assert!(view.stages.has(Stages::STORED.with(Stages::FAILED)));
    let row = &view.history[0];
    assert_eq!((row.end, row.worker.as_str(), row.number), (AttemptEnd::Failed, "host/1/guard", 2));
    bench.advance(60).await;
    let delivery = bench.lease_one().await;
    assert_eq!((delivery.cause, delivery.counters.deliveries), (Some(Cause::Failed), 3));
}

/// All of a batch or nothing.
pub async fn adoptions_are_stored_all_or_none(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let mut lost = message("b");
    lost.queue = queue("nowhere");
    let release = || Decision::Release { after: Duration::ZERO };
    let batch = vec![adoption(&bench, message("a"), "1", release()), adoption(&bench, lost, "2", release())];
    assert_eq!(code(bench.store().adopt(batch).await), "SB0001");
    assert_eq!(bench.stats().await.pushed, 0);
    let again = vec![adoption(&bench, message("a"), "1", release())];
    assert!(matches!(good(bench.store().adopt(again).await)[0], Pushed::New(_)));
}

/// Straight to quarantine.
pub async fn an_adopted_poison_is_a_dead_letter_that_can_be_replayed(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let decision =
        Decision::Quarantine { set_aside: SetAside::NonRetryableError, failure: Failure::poison("bad\0") };
    let id = good(bench.store().adopt(vec![adoption(&bench, message("a"), "o", decision)]).await)[0].id();
    let dead = bench.view(id).await.dead.unwrap_or_else(|| panic!("not dead"));
    assert_eq!((dead.set_aside, dead.error.as_str()), (SetAside::NonRetryableError, "bad\\u{0}"));
    assert!(bench.lease(1).await.is_empty());
    bench.replay(id).await;
    assert_eq!(bench.lease_ids(1).await, [id]);
}
