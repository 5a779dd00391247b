//! What is in hand is kept, given back in time, or let go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sickbay_core::port::Desk;
use sickbay_core::{Clock, Timestamp};
use sickbay_testkit::ManualClock;
use sickbay_worker::{Context, Worker};

use crate::scene::{Notes, SECOND, Scene, door, eventually, settle_down};

#[tokio::test]
async fn leases_of_what_runs_and_what_is_buffered_are_renewed_together() {
    let scene = Scene::with_attempts(1).await;
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(scene.push(&number.to_string()).await);
    }
    let door = door();
    let inside = Arc::clone(&door);
    let handler = move |_: Context| {
        let inside = Arc::clone(&inside);
        async move { inside.acquire().await.unwrap().forget() }
    };
    let running = scene.worker(handler).concurrency(1).buffer_expiry(1000 * SECOND).start();
    eventually("all are in hand", async || running.stats().in_hand == 4).await;
    scene.pass(100).await;
    assert_eq!(scene.stats().await.active, 4, "three leases' time has passed");
    let renewals = scene.source.renewals.load(Ordering::SeqCst);
    assert!((5..=10).contains(&renewals), "one call for all, every ten seconds: {renewals}");
    door.add_permits(4);
    scene.completed(4).await;
    assert_eq!(running.stats().lost, 0);
}

/// The clock of a machine that is wrong by some seconds.
struct Wrong(ManualClock, i64);

impl Clock for Wrong {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.now().millis() + self.1 * 1000)
    }

    fn wait_for(&self, until: Timestamp) -> Option<Duration> {
        self.0.wait_for(Timestamp::from_millis(until.millis() - self.1 * 1000))
    }

    fn on_tick(&self, tick: Arc<dyn Fn() -> bool + Send + Sync>) {
        self.0.on_tick(tick);
    }
}

#[tokio::test]
async fn on_a_machine_whose_clock_is_wrong_leases_are_kept_all_the_same() {
    for wrong_by in [600, 25, -25, -600] {
        let scene = Scene::with_attempts(1).await;
        scene.clock.advance(3600 * SECOND);
        scene.push("slow").await;
        let door = door();
        let inside = Arc::clone(&door);
        let handler = move |_: Context| {
            let inside = Arc::clone(&inside);
            async move { inside.acquire().await.unwrap().forget() }
        };
        let clock = Arc::new(Wrong(scene.clock.clone(), wrong_by));
        let running = Worker::new(scene.source.clone(), handler, clock).start();
        eventually("it is in hand", async || running.stats().in_hand == 1).await;
        scene.pass(100).await;
        assert_eq!(scene.stats().await.active, 1, "wrong by {wrong_by} s: its lease was renewed");
        door.add_permits(1);
        scene.completed(1).await;
        assert_eq!(running.stats().lost, 0, "wrong by {wrong_by} s");
    }
}

#[tokio::test]
async fn what_waits_too_long_in_the_buffer_is_given_back_uncounted() {
    let scene = Scene::with_attempts(1).await;
    let (door, notes) = (door(), Notes::default());
    let (inside, seen) = (Arc::clone(&door), notes.clone());
    let handler = move |ctx: Context| {
        let inside = Arc::clone(&inside);
        seen.add(String::from_utf8_lossy(ctx.payload()));
        async move { inside.acquire().await.unwrap().forget() }
    };
    let running = scene.worker(handler).concurrency(1).start();
    scene.push("first").await;
    notes.reach(1).await;
    let waiting = [scene.push("second").await, scene.push("third").await];
    eventually("they are buffered", async || running.stats().buffered == 2).await;
    scene.pass(15).await;
    eventually("they are given back", async || scene.stats().await.pending == 2).await;
    for id in waiting {
        let counters = scene.view(id).await.counters;
        assert_eq!((counters.deliveries, counters.releases, counters.counted()), (1, 1, 0));
    }
    scene.pass(60).await;
    let deliveries = scene.view(waiting[0]).await.counters.deliveries;
    assert!(deliveries <= 2, "it is not fetched again and again for nothing: {deliveries}");
    door.add_permits(3);
    scene.completed(3).await;
}

#[tokio::test]
async fn a_handler_whose_lease_is_lost_is_told_and_its_answer_changes_nothing() {
    let scene = Scene::with_attempts(5).await;
    let id = scene.push("a").await;
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = move |ctx: Context| {
        let seen = seen.clone();
        async move {
            seen.add("begun");
            ctx.cancelled().await;
            seen.add("told");
        }
    };
    let running = scene.worker(handler).start();
    notes.reach(1).await;
    scene.store.dead_letter(vec![id], "by hand".to_owned()).await.unwrap();
    scene.pass(20).await;
    notes.reach(2).await;
    eventually("it is counted as lost", async || running.stats().lost == 1).await;
    let stats = scene.stats().await;
    assert_eq!((stats.dead, stats.completed), (1, 0));
    assert_eq!(running.stats().in_hand, 0);
}

#[tokio::test]
async fn a_handler_that_does_not_listen_is_dropped_when_its_lease_is_lost() {
    let scene = Scene::with_attempts(5).await;
    let id = scene.push("a").await;
    let running = scene.worker(async |_: Context| std::future::pending::<()>().await).start();
    eventually("it runs", async || running.stats().running == 1).await;
    scene.store.dead_letter(vec![id], "by hand".to_owned()).await.unwrap();
    scene.pass(20).await;
    eventually("its slot is free", async || running.stats().running == 0).await;
    assert_eq!(running.stats().lost, 1);
}

#[tokio::test]
async fn when_leases_cannot_be_renewed_handlers_are_told_before_they_end() {
    let scene = Scene::with_attempts(5).await;
    scene.push("a").await;
    let notes = Notes::default();
    let (seen, clock) = (notes.clone(), scene.clock());
    let begun_at = clock.now();
    let handler = move |ctx: Context| {
        let (seen, clock) = (seen.clone(), Arc::clone(&clock));
        async move {
            ctx.cancelled().await;
            seen.add(format!("{}", clock.now().since(begun_at).as_secs()));
            std::future::pending::<()>().await;
        }
    };
    let running = scene.worker(handler).start();
    eventually("it runs", async || running.stats().running == 1).await;
    scene.source.renewals_fail.store(true, Ordering::SeqCst);
    scene.pass(29).await;
    let told_at: u64 = notes.all()[0].parse().unwrap();
    assert!((20..30).contains(&told_at), "told after {told_at} s of 30");
    scene.pass(10).await;
    eventually("it is dropped", async || running.stats().lost == 1).await;
}

#[tokio::test]
async fn a_turn_that_fails_loses_no_settlement() {
    for answer_is_lost in [false, true] {
        let scene = Scene::with_attempts(5).await;
        let (door, notes) = (door(), Notes::default());
        let (inside, seen) = (Arc::clone(&door), notes.clone());
        let handler = move |ctx: Context| {
            let inside = Arc::clone(&inside);
            seen.add("run");
            async move {
                inside.acquire().await.unwrap().forget();
                if ctx.payload() == "fails" { Err("connection reset") } else { Ok(()) }
            }
        };
        let running = scene.worker(handler).start();
        scene.push("works").await;
        scene.push("fails").await;
        notes.reach(2).await;
        let fault = if answer_is_lost { &scene.source.answer_is_lost } else { &scene.source.turns_fail };
        fault.store(true, Ordering::SeqCst);
        door.add_permits(2);
        eventually("the turn fails", async || running.stats().source_errors > 0).await;
        fault.store(false, Ordering::SeqCst);
        scene.pass(6).await;
        eventually("both are settled", async || running.stats().in_hand == 0).await;
        let stats = scene.stats().await;
        assert_eq!((stats.completed, stats.failed), (1, 1));
        assert_eq!(notes.count(), 2, "nothing ran twice");
        assert!(running.stats().last_error.unwrap().contains("cannot be reached"));
    }
}

#[tokio::test]
async fn an_idle_worker_makes_no_calls_while_time_passes() {
    let scene = Scene::with_attempts(1).await;
    let running = scene.worker(async |_: Context| ()).start();
    settle_down().await;
    scene.pass(30).await;
    assert_eq!(scene.source.renewals.load(Ordering::SeqCst), 0);
    assert_eq!(running.stats().claimed, 0);
}

#[tokio::test]
async fn a_buffered_message_whose_lease_is_lost_never_runs() {
    let scene = Scene::with_attempts(5).await;
    let (door, notes) = (door(), Notes::default());
    let (inside, seen) = (Arc::clone(&door), notes.clone());
    let handler = move |ctx: Context| {
        let inside = Arc::clone(&inside);
        seen.add(String::from_utf8_lossy(ctx.payload()));
        async move { inside.acquire().await.unwrap().forget() }
    };
    let running = scene.worker(handler).concurrency(1).buffer_expiry(1000 * SECOND).start();
    scene.push("first").await;
    notes.reach(1).await;
    let second = scene.push("second").await;
    eventually("it is buffered", async || running.stats().buffered == 1).await;
    scene.store.dead_letter(vec![second], "by hand".to_owned()).await.unwrap();
    scene.pass(20).await;
    door.add_permits(2);
    scene.completed(1).await;
    eventually("nothing is in hand", async || running.stats().in_hand == 0).await;
    assert_eq!(notes.all(), ["first"]);
    assert_eq!(running.stats().lost, 1);
}

#[tokio::test]
async fn a_claim_waits_while_settlements_are_on_their_way() {
    let scene = Scene::with_attempts(1).await;
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = move |_: Context| {
        seen.add("run");
        async {}
    };
    let _running = scene.worker(handler).start();
    settle_down().await;
    scene.source.settling.forget_permits(usize::MAX);
    scene.push("a").await;
    notes.reach(1).await;
    scene.push("b").await;
    notes.reach(2).await;
    assert_eq!(scene.stats().await.completed, 0, "the first is not settled yet");
    scene.source.settling.add_permits(10);
    scene.completed(2).await;
}

#[tokio::test]
async fn handlers_that_block_their_thread_do_not_keep_others_from_running() {
    let scene = Scene::with_attempts(1).await;
    for number in 0..50 {
        scene.push(&number.to_string()).await;
    }
    let clock = scene.clock.clone();
    let handler = move |_: Context| {
        clock.advance(SECOND / 10);
        async {}
    };
    let running = scene.worker(handler).concurrency(3).start();
    scene.completed(50).await;
    assert_eq!(running.stats().done, 50);
}
