//! One delivery from the gate to its settlement.

use std::sync::Arc;
use std::time::Duration;

use sickbay_core::decide::SetAside;
use sickbay_core::policy::RetryPolicy;
use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, ProcessId};
use sickbay_core::verdict::{Done, Failed};
use sickbay_core::{Clock, Failure, Kind, QueuePolicy, Reason, Stages, Timestamp, Verdict, WorkerName};
use sickbay_store::MemoryEffect;
use sickbay_testkit::ManualClock;
use sickbay_worker::{Context, Worker};

use crate::scene::{Notes, SECOND, Scene, door, eventually, settle_down};

#[tokio::test]
async fn a_message_pushed_to_an_idle_worker_is_handled_without_time_passing() {
    let scene = Scene::with_attempts(1).await;
    let notes = Notes::default();
    let seen = notes.clone();
    let running = scene.worker(move |ctx: Context| {
        seen.add(format!("{} {}", String::from_utf8_lossy(ctx.payload()), ctx.attempt()));
        async {}
    });
    let running = running.start();
    settle_down().await;
    scene.push("a").await;
    scene.completed(1).await;
    scene.push("b").await;
    scene.completed(2).await;
    assert_eq!(notes.all(), ["a 1", "b 1"]);
    let stats = running.stats();
    assert_eq!((stats.claimed, stats.done, stats.in_hand, stats.running), (2, 2, 0, 0));
}

/// Where many share a store, two turns that settle parts of one claim would wait for each other.
#[tokio::test]
async fn two_turns_never_settle_parts_of_one_claim_at_once() {
    let scene = Scene::with_attempts(1).await;
    for number in 0..4 {
        scene.push(&number.to_string()).await;
    }
    // The first turn with a settlement is held, while handlers of the same claim go on ending.
    scene.source.settling.forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
    let (notes, door) = (Notes::default(), door());
    let (seen, at) = (notes.clone(), door.clone());
    let running = scene.worker(move |_: Context| {
        let (seen, at) = (seen.clone(), at.clone());
        async move {
            at.acquire().await.unwrap().forget();
            seen.add("ended");
        }
    });
    let running = running.concurrency(4).prefetch(0).start();
    for ended in 1..=2 {
        door.add_permits(1);
        notes.reach(ended).await;
        settle_down().await;
    }
    assert!(!scene.source.a_claim_was_split.load(std::sync::atomic::Ordering::SeqCst));
    door.add_permits(2);
    scene.source.settling.add_permits(100);
    scene.completed(4).await;
    assert_eq!(running.stats().done, 4);
}

#[tokio::test]
async fn a_thousand_messages_are_each_handled_once() {
    let scene = Scene::with_attempts(1).await;
    for number in 0..1000 {
        scene.push(&number.to_string()).await;
    }
    let notes = Notes::default();
    let seen = notes.clone();
    let running = scene.worker(move |ctx: Context| {
        let (seen, number) = (seen.clone(), String::from_utf8_lossy(ctx.payload()).into_owned());
        async move {
            // Some answer at once, some later.
            if number.ends_with('7') {
                settle_down().await;
            }
            seen.add(number);
        }
    });
    let running = running.start();
    scene.completed(1000).await;
    let mut seen: Vec<u32> = notes.all().iter().map(|number| number.parse().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..1000).collect::<Vec<_>>());
    assert_eq!(running.stats().done, 1000);
}

#[tokio::test]
async fn no_more_handlers_run_at_once_than_were_asked_for() {
    for concurrency in [1, 3] {
        let scene = Scene::with_attempts(1).await;
        for number in 0..50 {
            scene.push(&number.to_string()).await;
        }
        let notes = Notes::default();
        let seen = notes.clone();
        let handler = move |_: Context| {
            let seen = seen.clone();
            async move {
                seen.enter();
                settle_down().await;
                seen.leave();
            }
        };
        let _running = scene.worker(handler).concurrency(concurrency).start();
        scene.completed(50).await;
        assert_eq!(notes.most_at_once(), concurrency);
    }
}

#[tokio::test]
async fn an_ordinary_error_is_classified_and_recorded_with_its_causes() {
    #[derive(Debug)]
    struct Outer(std::io::Error);
    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("cannot reach the ledger")
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let scene = Scene::with_attempts(3).await;
    let id = scene.push("a").await;
    let handler = async |_: Context| -> Result<(), Outer> {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        Err(Outer(refused))
    };
    let _running = scene.worker(handler).start();
    scene.failed(1).await;
    let view = scene.view(id).await;
    let failure = view.history[0].failure.clone().unwrap();
    assert_eq!(failure.error, "cannot reach the ledger: connection refused");
    assert_eq!(failure.kind, Kind::Transient);
    assert!(view.history[0].signature.is_some());
    assert_eq!((view.counters.deliveries, view.counters.failures), (1, 1));
}

#[tokio::test]
async fn a_panic_is_an_ordinary_failure_and_the_worker_goes_on() {
    let scene = Scene::with_attempts(2).await;
    let id = scene.push("bad").await;
    scene.push("good").await;
    let handler = |ctx: Context| {
        // Before the future is made …
        assert!(ctx.attempt() != 1 || ctx.payload() != "bad", "no future");
        async move {
            // … and in it.
            assert!(ctx.payload() != "bad", "half-way");
        }
    };
    let running = scene.worker(handler).start();
    scene.completed(1).await;
    scene.failed(1).await;
    scene.pass(10).await;
    scene.quarantined(1).await;
    let view = scene.view(id).await;
    let failures: Vec<_> = view.history.iter().map(|attempt| attempt.failure.clone().unwrap()).collect();
    assert!(failures[0].error.starts_with("panicked: no future"), "{}", failures[0].error);
    assert!(failures[1].error.starts_with("panicked: half-way"), "{}", failures[1].error);
    assert_eq!((failures[0].kind, failures[0].reason), (Kind::Unknown, Reason::HandlerException));
    assert_eq!(view.dead.unwrap().set_aside, SetAside::MaxDeliveryCountExceeded);
    assert_eq!(running.stats().panics, 2);
}

#[tokio::test]
async fn a_panic_while_a_handler_is_dropped_is_caught_too() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let scene = Scene::new(QueuePolicy { time_budget: 5 * SECOND, ..QueuePolicy::default() }).await;
    scene.push("a").await;
    let handler = |_: Context| async {
        let _bomb = Bomb;
        std::future::pending::<()>().await;
    };
    let running = scene.worker(handler).start();
    eventually("it runs", async || running.stats().running == 1).await;
    scene.clock.advance(5 * SECOND);
    scene.quarantined(1).await;
    assert_eq!(scene.dead().await[0].reason, Reason::TimeoutExceeded);
    eventually("the slot is free again", async || running.stats().running == 0).await;
}

#[tokio::test]
async fn an_overrun_is_cut_off_at_its_time_budget_and_not_tried_again() {
    let mut policy = QueuePolicy::with_retry(RetryPolicy::cooldown(5, SECOND));
    policy.time_budget = 20 * SECOND;
    let scene = Scene::new(policy).await;
    let id = scene.push("slow").await;
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = move |ctx: Context| {
        let seen = seen.clone();
        async move {
            seen.add(format!("{:?}", ctx.remaining()));
            std::future::pending::<()>().await;
        }
    };
    let running = scene.worker(handler).start();
    notes.reach(1).await;
    scene.pass(19).await;
    assert_eq!(scene.stats().await.active, 1, "one second is left");
    scene.pass(1).await;
    scene.quarantined(1).await;
    let view = scene.view(id).await;
    let attempt = &view.history[0];
    assert_eq!(attempt.failure.as_ref().unwrap().reason, Reason::TimeoutExceeded);
    assert_eq!(attempt.ran, Some(20 * SECOND));
    assert_eq!(notes.all(), ["20s"]);
    assert_eq!(running.stats().overruns, 1);
}

#[tokio::test]
async fn a_policy_edited_between_two_attempts_decides_the_second() {
    let scene = Scene::with_attempts(5).await;
    let id = scene.push("a").await;
    let handler = async |_: Context| Verdict::retry(Failure::transient("not yet"));
    let _running = scene.worker(handler).start();
    scene.failed(1).await;
    let stricter = QueuePolicy::with_retry(RetryPolicy::cooldown(2, 10 * SECOND));
    scene.store.define_queue(&scene.queue, stricter).await.unwrap();
    scene.pass(10).await;
    scene.quarantined(1).await;
    assert_eq!(scene.view(id).await.counters.failures, 2);
}

#[tokio::test]
async fn a_policy_edited_while_the_handler_runs_decides_about_it() {
    let scene = Scene::with_attempts(1).await;
    scene.push("a").await;
    let (door, notes) = (door(), Notes::default());
    let (inside, seen) = (Arc::clone(&door), notes.clone());
    let handler = move |_: Context| {
        seen.add("begun");
        let inside = Arc::clone(&inside);
        async move {
            inside.acquire().await.unwrap().forget();
            Err::<(), _>("connection reset by peer")
        }
    };
    let _running = scene.worker(handler).start();
    notes.reach(1).await;
    let kinder = QueuePolicy::with_retry(RetryPolicy::cooldown(2, 10 * SECOND));
    scene.store.define_queue(&scene.queue, kinder).await.unwrap();
    door.add_permits(1);
    scene.failed(1).await;
}

#[tokio::test]
async fn failed_writes_of_the_handler_settle_the_delivery_as_failed() {
    let scene = Scene::with_attempts(2).await;
    let id = scene.push("a").await;
    let handler = async |ctx: Context| {
        let first = ctx.attempt() == 1;
        let writes = move || if first { Err("unique constraint".to_owned()) } else { Ok(()) };
        Verdict::Done(Done { effect: Some(MemoryEffect::effect(writes)) })
    };
    let running = scene.worker(handler).start();
    scene.failed(1).await;
    let failure = scene.view(id).await.history[0].failure.clone().unwrap();
    assert_eq!(failure.error, "the handler's own writes failed: unique constraint");
    assert_eq!(failure.reason, Reason::HandlerException);
    scene.pass(10).await;
    scene.completed(1).await;
    let stats = running.stats();
    assert_eq!((stats.effects_failed, stats.retried, stats.done, stats.lost), (1, 1, 1, 0));
}

#[tokio::test]
async fn a_deferred_message_comes_back_when_asked_without_a_failure() {
    let scene = Scene::with_attempts(1).await;
    let id = scene.push("a").await;
    let handler = async |ctx: Context| match ctx.attempt() {
        1 => Verdict::Defer(60 * SECOND),
        _ => Verdict::done(),
    };
    let _running = scene.worker(handler).start();
    eventually("it is scheduled", async || scene.stats().await.scheduled == 1).await;
    let counters = scene.view(id).await.counters;
    assert_eq!((counters.failures, counters.counted()), (0, 0));
    scene.pass(59).await;
    assert_eq!(scene.stats().await.completed, 0);
    scene.pass(1).await;
    scene.completed(1).await;
}

#[tokio::test]
async fn finished_stages_are_kept_whatever_becomes_of_the_attempt() {
    let scene = Scene::with_attempts(4).await;
    scene.push("a").await;
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = move |ctx: Context| {
        let seen = seen.clone();
        async move {
            seen.add(ctx.stages().to_string());
            match ctx.attempt() {
                1 => {
                    ctx.finish_stage(Stages::STORED);
                    panic!("after storing");
                }
                2 => {
                    let failure = Failure::transient("no broker");
                    Verdict::Retry(Failed { failure, stages: Stages::EVENT_STORED, cascade: false })
                }
                _ => Verdict::done(),
            }
        }
    };
    let _running = scene.worker(handler).start();
    scene.failed(1).await;
    scene.pass(10).await;
    notes.reach(2).await;
    scene.failed(1).await;
    scene.pass(10).await;
    scene.completed(1).await;
    assert_eq!(notes.all(), ["none", "Stored|Failed", "Stored|EventStored|Failed"]);
}

#[tokio::test]
async fn a_handler_is_told_when_a_failure_would_be_the_last() {
    let scene = Scene::with_attempts(2).await;
    scene.push("a").await;
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = move |ctx: Context| {
        seen.add(ctx.is_last_attempt().to_string());
        async { Verdict::retry(Failure::transient("no")) }
    };
    let _running = scene.worker(handler).start();
    scene.failed(1).await;
    scene.pass(10).await;
    scene.quarantined(1).await;
    assert_eq!(notes.all(), ["false", "true"]);
}

#[tokio::test]
async fn a_passed_deadline_and_too_many_deliveries_keep_a_message_from_its_handler() {
    let scene = Scene::with_attempts(1).await;
    let late = scene.push_message(scene.message("late").deadline(5 * SECOND)).await;
    scene.pass(6).await;
    // Its lease runs out once: the second delivery is above the limit of one.
    let twice = scene.push("twice").await;
    let claim = Claim {
        queue: scene.queue.clone(),
        worker: WorkerName::new("other").unwrap(),
        process: ProcessId(9),
        max: 2,
        wait: Duration::ZERO,
        lease: SECOND,
    };
    scene.store.exchange(Exchange::claim(claim)).await.unwrap();
    scene.pass(2).await;
    scene.store.sweep().await.unwrap();
    let handler = async |_: Context| -> () { panic!("it must not run") };
    let _running = scene.worker(handler).start();
    scene.quarantined(2).await;
    assert_eq!(scene.view(twice).await.dead.unwrap().set_aside, SetAside::PoisonMessage);
    let late = scene.view(late).await.dead.unwrap();
    assert!(matches!(late.set_aside, SetAside::DeadlinePassed | SetAside::PoisonMessage), "{late:?}");
}

/// Machines differ in what time it is; a deadline is a time of the store's.
#[tokio::test]
async fn a_deadline_is_judged_by_the_clock_of_the_store() {
    for ahead in [true, false] {
        let scene = Scene::with_attempts(1).await;
        let (now, skew) = (scene.clock.now().millis(), 600_000);
        let own = ManualClock::at(Timestamp::from_millis(if ahead { now + skew } else { now - skew }));
        let kept = scene.push_message(scene.message("kept").deadline(60 * SECOND)).await;
        let late = scene.push_message(scene.message("late").deadline(5 * SECOND)).await;
        scene.pass(6).await;
        let notes = Notes::default();
        let seen = notes.clone();
        let handler = move |ctx: Context| {
            seen.add(String::from_utf8_lossy(ctx.payload()));
            async {}
        };
        let _running = Worker::new(scene.source.clone(), handler, Arc::new(own)).start();
        scene.quarantined(1).await;
        scene.completed(1).await;
        assert_eq!(notes.all(), ["kept"], "{kept}");
        assert_eq!(scene.view(late).await.dead.unwrap().set_aside, SetAside::DeadlinePassed);
    }
}

#[tokio::test]
async fn suspects_are_handled_alone_and_cleared_by_success() {
    let scene = Scene::with_attempts(3).await;
    for number in 0..3 {
        scene.push(&number.to_string()).await;
    }
    let claim = Claim {
        queue: scene.queue.clone(),
        worker: WorkerName::new("doomed").unwrap(),
        process: ProcessId(9),
        max: 3,
        wait: Duration::ZERO,
        lease: 30 * SECOND,
    };
    let taken = scene.store.exchange(Exchange::claim(claim)).await.unwrap();
    assert_eq!(taken.deliveries.len(), 3);
    scene.store.process_died(ProcessId(9), "signal 9".to_owned()).await.unwrap();
    for number in 3..9 {
        scene.push(&number.to_string()).await;
    }
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = move |ctx: Context| {
        let seen = seen.clone();
        async move {
            seen.enter();
            let alone = seen.clone();
            settle_down().await;
            if ctx.is_suspect() {
                assert_eq!(alone.at_once(), 1, "a suspect must be alone");
            }
            seen.leave();
        }
    };
    let running = scene.worker(handler).start();
    scene.completed(9).await;
    assert_eq!(running.stats().panics, 0);
}
