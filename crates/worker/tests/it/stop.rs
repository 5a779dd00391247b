//! Graceful stop (A15): finished or given back, within a limit, and nothing counted that did not run.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sickbay_worker::{Context, Stopped};

use crate::scene::{Notes, SECOND, Scene, door, eventually, settle_down};

#[tokio::test]
async fn stop_gives_back_what_no_handler_saw_and_counts_nothing() {
    let scene = Scene::with_attempts(1).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(scene.push(&number.to_string()).await);
    }
    let (door, notes) = (door(), Notes::default());
    let (inside, seen) = (Arc::clone(&door), notes.clone());
    let handler = move |_: Context| {
        let inside = Arc::clone(&inside);
        seen.add("begun");
        async move { inside.acquire().await.unwrap().forget() }
    };
    let running = scene.worker(handler).concurrency(2).start();
    eventually("all are in hand", async || running.stats().in_hand == 5).await;
    assert_eq!(notes.count(), 2);
    let stopping = tokio::spawn(running.stop());
    settle_down().await;
    assert_eq!(scene.stats().await.pending, 3, "given back at once, before the handlers end");
    door.add_permits(2);
    let stopped = stopping.await.unwrap();
    assert_eq!(stopped, Stopped { finished: 2, given_back: 3, abandoned: 0 });
    assert_eq!(scene.stats().await.completed, 2);
    for id in &ids[2..] {
        let counters = scene.view(*id).await.counters;
        assert_eq!((counters.counted(), counters.failures, counters.expiries), (0, 0, 0));
    }
    assert_eq!(notes.count(), 2, "nothing was begun after the stop");
    scene.push("later").await;
    settle_down().await;
    assert_eq!(scene.stats().await.pending, 4, "a stopped worker takes nothing");
}

#[tokio::test]
async fn handlers_that_run_longer_than_the_limit_are_cancelled_and_given_back() {
    let scene = Scene::with_attempts(1).await;
    let id = scene.push("slow").await;
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = move |ctx: Context| {
        let seen = seen.clone();
        async move {
            seen.add("begun");
            ctx.cancelled().await;
            seen.add("told");
            std::future::pending::<()>().await;
        }
    };
    let running = scene.worker(handler).stop_limit(10 * SECOND).start();
    notes.reach(1).await;
    let stopping = tokio::spawn(running.stop());
    settle_down().await;
    scene.pass(9).await;
    assert!(!stopping.is_finished());
    scene.pass(1).await;
    let stopped = stopping.await.unwrap();
    assert_eq!(stopped, Stopped { finished: 0, given_back: 0, abandoned: 1 });
    assert_eq!(scene.stats().await.pending, 1);
    assert_eq!(scene.view(id).await.counters.counted(), 0);
    notes.reach(2).await;
}

#[tokio::test]
async fn an_idle_worker_stops_at_once() {
    let scene = Scene::with_attempts(1).await;
    let running = scene.worker(async |_: Context| ()).start();
    settle_down().await;
    assert_eq!(running.stop().await, Stopped::default());
    let running = scene.worker(async |_: Context| ()).start();
    assert_eq!(running.stop().await, Stopped::default(), "also before it has begun");
}

#[tokio::test]
async fn stop_ends_even_if_the_store_cannot_be_reached() {
    let scene = Scene::with_attempts(1).await;
    scene.push("a").await;
    let running = scene.worker(async |_: Context| std::future::pending::<()>().await).start();
    eventually("it runs", async || running.stats().running == 1).await;
    scene.source.turns_fail.store(true, Ordering::SeqCst);
    let stopping = tokio::spawn(running.stop());
    settle_down().await;
    scene.pass(40).await;
    assert_eq!(stopping.await.unwrap().abandoned, 1);
}

#[tokio::test]
async fn a_dropped_worker_begins_nothing_more_and_settles_what_runs() {
    let scene = Scene::with_attempts(1).await;
    for number in 0..3 {
        scene.push(&number.to_string()).await;
    }
    let door = door();
    let inside = Arc::clone(&door);
    let handler = move |_: Context| {
        let inside = Arc::clone(&inside);
        async move { inside.acquire().await.unwrap().forget() }
    };
    let running = scene.worker(handler).concurrency(1).start();
    eventually("all are in hand", async || running.stats().in_hand == 3).await;
    drop(running);
    settle_down().await;
    assert_eq!(scene.stats().await.pending, 2);
    scene.pass(40).await;
    door.add_permits(3);
    scene.completed(1).await;
    assert_eq!(scene.stats().await.pending, 2);
}

#[tokio::test]
async fn a_source_that_cannot_go_on_ends_the_worker() {
    let scene = Scene::with_attempts(1).await;
    scene.source.stops.store(true, Ordering::SeqCst);
    let running = scene.worker(async |_: Context| ()).start();
    running.ended().await;
    assert_eq!(running.stats().last_error.unwrap(), "the disk is gone (SB0000)");
    let stopping = tokio::spawn(running.stop());
    scene.pass(10).await;
    assert_eq!(stopping.await.unwrap(), Stopped::default());
}
