//! Who works on a store (rule 41).

use sickbay_core::WorkerName;
use sickbay_core::port::{Claim, ProcessId};
use sickbay_core::stats::ProcessView;
use sickbay_core::{QueuePolicy, Settlement};

use super::bench::{Bench, good, message, process, queue};
use crate::fixture::Fixture;

/// What the store says of one process. Others may have it open besides.
async fn seen(bench: &Bench<'_>, process: ProcessId) -> Option<ProcessView> {
    let all = good(bench.store().processes().await);
    assert!(all.windows(2).all(|pair| pair[0].process < pair[1].process), "each once, in order");
    all.into_iter().find(|view| view.process == process)
}

fn named(claim: Claim, worker: &str) -> Claim {
    let worker = WorkerName::new(worker).unwrap_or_else(|error| panic!("{error}"));
    Claim { worker, ..claim }
}

/// Rule 41.
pub async fn a_process_is_listed_with_its_workers_its_queues_and_what_it_holds(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.define("r", QueuePolicy::default()).await;
    bench.push_all((0..3).map(|n| message(n.to_string())).collect()).await;
    assert_eq!(seen(&bench, process(7)).await, None);
    let held = bench.take(named(bench.claim_as(process(7), 2), "host/7/b")).await;
    bench.advance(5).await;
    let other = Claim { queue: queue("r"), ..bench.claim_as(process(7), 2) };
    bench.take(named(other, "host/7/a")).await;
    bench.take(named(bench.claim_as(process(8), 1), "host/8/a")).await;
    let view = seen(&bench, process(7)).await.unwrap_or_else(|| panic!("it is not listed"));
    assert_eq!(view.workers, ["host/7/a", "host/7/b"]);
    assert_eq!(view.queues, [queue("q"), queue("r")]);
    assert_eq!((view.seen_at, view.holds), (bench.now(), 2));
    bench.settle(Settlement::complete(held[0].token())).await;
    assert_eq!(seen(&bench, process(7)).await.map(|view| view.holds), Some(1));
    assert_eq!(seen(&bench, process(8)).await.map(|view| view.holds), Some(1));
}

/// Rule 41.
pub async fn a_process_that_is_silent_for_a_minute_and_holds_nothing_is_not_listed(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push(message("a")).await;
    let mut claim = bench.claim_as(process(7), 1);
    claim.lease = super::bench::seconds(600);
    let held = bench.take(claim).await;
    bench.take(bench.claim_as(process(8), 1)).await;
    bench.advance(61).await;
    assert_eq!(seen(&bench, process(8)).await, None);
    assert_eq!(seen(&bench, process(7)).await.map(|view| view.holds), Some(1));
    bench.done(&held[0]).await;
    assert_eq!(seen(&bench, process(7)).await, None);
}

/// Rules 17 and 41.
pub async fn a_process_that_died_is_not_listed(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    bench.push(message("a")).await;
    bench.take(bench.claim_as(process(7), 1)).await;
    good(bench.store().process_died(process(7), "signal 9".into()).await);
    assert_eq!(seen(&bench, process(7)).await, None);
}
