//! Many handlers of every kind on several threads: nothing is lost, nothing is settled twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sickbay_core::policy::{RetryPolicy, WhenHeadQuarantined};
use sickbay_core::port::{Claim, Deliveries, Exchange, ProcessId};
use sickbay_core::{Failure, QueuePolicy, StreamKey, Verdict, WorkerName};
use sickbay_worker::{Context, Sweeper};

use crate::scene::{SECOND, Scene, eventually};

const MESSAGES: u64 = 1000;

fn retried_at_once() -> QueuePolicy {
    let retry = RetryPolicy::cooldown(3, Duration::ZERO);
    QueuePolicy { when_head_quarantined: WhenHeadQuarantined::Pass, ..QueuePolicy::with_retry(retry) }
}

/// Answers at once, later, with a failure, or not at all but with a panic.
async fn mixed(ctx: Context) -> Verdict {
    let number: u64 = std::str::from_utf8(ctx.payload()).unwrap().parse().unwrap();
    for _ in 0..number % 5 {
        tokio::task::yield_now().await;
    }
    match number % 7 {
        1 if ctx.attempt() == 1 => Verdict::retry(Failure::transient("not yet")),
        2 if ctx.attempt() == 1 => panic!("{number}"),
        3 => Verdict::retry(Failure::transient("never")),
        4 if ctx.attempt() == 1 => Verdict::Defer(Duration::ZERO),
        _ => Verdict::done(),
    }
}

async fn filled() -> Scene {
    let scene = Scene::new(retried_at_once()).await;
    for number in 0..MESSAGES {
        let mut message = scene.message(&number.to_string());
        if number % 3 == 0 {
            message = message.stream(StreamKey::new((number % 50).to_string()).unwrap());
        }
        scene.push_message(message).await;
    }
    scene
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn every_message_of_many_is_settled_exactly_once() {
    let scene = filled().await;
    let running = scene.worker(mixed).concurrency(16).start();
    let never = (0..MESSAGES).filter(|number| number % 7 == 3).count() as u64;
    eventually("all are through", async || {
        let stats = scene.stats().await;
        stats.completed + stats.dead == MESSAGES
    })
    .await;
    eventually("the worker has heard of it", async || running.stats().in_hand == 0).await;
    let (store, own) = (scene.stats().await, running.stats());
    assert!(store.adds_up());
    assert_eq!((store.completed, store.dead), (MESSAGES - never, never));
    assert_eq!((own.done, own.quarantined, own.lost), (MESSAGES - never, never, 0));
    assert_eq!(own.claimed, own.done + own.quarantined + own.retried + own.given_back);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn stopped_in_the_middle_nothing_stays_in_hand_and_nothing_unrun_is_counted() {
    let scene = filled().await;
    for round in 1..=20 {
        let begun = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&begun);
        let handler = move |ctx: Context| {
            count.fetch_add(1, Ordering::SeqCst);
            mixed(ctx)
        };
        let running = scene.worker(handler).concurrency(8).start();
        eventually("some have begun", async || {
            begun.load(Ordering::SeqCst) >= round * 5 || scene.stats().await.pending == 0
        })
        .await;
        let stopped = running.stop().await;
        assert_eq!(stopped.abandoned, 0);
        let stats = scene.stats().await;
        assert!(stats.adds_up());
        assert_eq!(stats.active, 0, "after {round} stops");
        if stats.pending == 0 {
            break;
        }
    }
    let expired = scene.dead().await.into_iter().any(|letter| letter.counters.expiries > 0);
    assert!(!expired);
}

#[tokio::test]
async fn the_sweeper_brings_expired_leases_back() {
    let scene = Scene::new(retried_at_once()).await;
    scene.push("a").await;
    let claim = Claim {
        queue: scene.queue.clone(),
        worker: WorkerName::new("other").unwrap(),
        process: ProcessId(9),
        max: 1,
        wait: Duration::ZERO,
        lease: 5 * SECOND,
    };
    scene.store.exchange(Exchange::claim(claim)).await.unwrap();
    let _sweeper = Sweeper::start(scene.store.clone(), scene.clock(), SECOND);
    scene.pass(6).await;
    assert_eq!(scene.stats().await.pending, 1);
}
