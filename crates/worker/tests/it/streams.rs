//! Streams in the worker's hands: in order, one after the other.

use std::sync::Arc;

use sickbay_core::verdict::{Done, Failed};
use sickbay_core::{Failure, Stages, StreamKey, Verdict};
use sickbay_store::MemoryEffect;
use sickbay_worker::{BoxFuture, Context};

use crate::scene::{Notes, Scene, door, eventually, settle_down};

async fn stream_of(scene: &Scene, names: &[&str]) {
    for name in names {
        let stream = StreamKey::new(&name[..1]).unwrap();
        scene.push_message(scene.message(name).stream(stream)).await;
    }
}

/// Notes each name, and fails those that end with `!` as told.
fn noting(notes: &Notes, fail: fn() -> Verdict) -> impl Fn(Context) -> BoxFuture<'static, Verdict> + use<> {
    let notes = notes.clone();
    move |ctx: Context| {
        let notes = notes.clone();
        Box::pin(async move {
            let name = String::from_utf8_lossy(ctx.payload()).into_owned();
            let fails = name.ends_with('!') && ctx.attempt() == 1;
            notes.add(name);
            settle_down().await;
            if fails { fail() } else { Verdict::done() }
        })
    }
}

#[tokio::test]
async fn a_run_is_handled_in_order_one_after_the_other_and_streams_beside_each_other() {
    let scene = Scene::with_attempts(3).await;
    stream_of(&scene, &["a1", "a2", "b1", "a3", "b2", "b3"]).await;
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = move |ctx: Context| {
        let seen = seen.clone();
        async move {
            let name = String::from_utf8_lossy(ctx.payload()).into_owned();
            seen.enter();
            settle_down().await;
            seen.add(name);
            seen.leave();
        }
    };
    let _running = scene.worker(handler).start();
    scene.completed(6).await;
    let of = |stream: &str| notes.all().into_iter().filter(|n| n.starts_with(stream)).collect::<Vec<_>>();
    assert_eq!(of("a"), ["a1", "a2", "a3"]);
    assert_eq!(of("b"), ["b1", "b2", "b3"]);
    assert_eq!(notes.most_at_once(), 2, "two streams, one handler each");
}

#[tokio::test]
async fn behind_a_failure_the_rest_of_the_run_is_given_back_unrun() {
    let scene = Scene::with_attempts(3).await;
    stream_of(&scene, &["a1", "a2!", "a3", "a4"]).await;
    let notes = Notes::default();
    let running = scene.worker(noting(&notes, || Verdict::retry(Failure::transient("no")))).start();
    scene.failed(1).await;
    settle_down().await;
    assert_eq!(notes.all(), ["a1", "a2!"]);
    let stats = scene.stats().await;
    assert_eq!((stats.active, stats.pending), (0, 2), "the later ones wait in the store");
    assert_eq!(running.stats().given_back, 2);
    scene.pass(10).await;
    scene.completed(4).await;
    assert_eq!(notes.all(), ["a1", "a2!", "a2!", "a3", "a4"]);
}

#[tokio::test]
async fn a_failure_that_says_cascade_lets_the_rest_of_the_run_go_on() {
    let scene = Scene::with_attempts(3).await;
    stream_of(&scene, &["a1", "a2!", "a3", "a4"]).await;
    let notes = Notes::default();
    let cascade = || {
        let failure = Failure::transient("no");
        Verdict::Retry(Failed { failure, stages: Stages::NONE, cascade: true })
    };
    let running = scene.worker(noting(&notes, cascade)).start();
    scene.completed(3).await;
    assert_eq!(running.stats().given_back, 0);
    assert_eq!(notes.all(), ["a1", "a2!", "a3", "a4"]);
    assert_eq!(scene.stats().await.failed, 1);
    scene.pass(10).await;
    scene.completed(4).await;
}

#[tokio::test]
async fn behind_own_writes_the_rest_of_the_run_waits_until_they_took_effect() {
    let scene = Scene::with_attempts(3).await;
    stream_of(&scene, &["a1", "a2!", "a3"]).await;
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = move |ctx: Context| {
        let name = String::from_utf8_lossy(ctx.payload()).into_owned();
        let fails = name.ends_with('!') && ctx.attempt() == 1;
        seen.add(name.clone());
        let seen = seen.clone();
        async move {
            let writes = move || {
                seen.add(format!("{name} written"));
                if fails { Err("no room".to_owned()) } else { Ok(()) }
            };
            Verdict::Done(Done { effect: Some(MemoryEffect::effect(writes)) })
        }
    };
    let _running = scene.worker(handler).start();
    scene.failed(1).await;
    settle_down().await;
    assert_eq!(notes.all(), ["a1", "a1 written", "a2!", "a2! written"], "a3 must not run before a2");
    scene.pass(10).await;
    scene.completed(3).await;
    assert_eq!(notes.all()[4..], ["a2!", "a2! written", "a3", "a3 written"]);
}

#[tokio::test]
async fn stop_gives_back_the_rest_of_a_run() {
    let scene = Scene::with_attempts(3).await;
    stream_of(&scene, &["a1", "a2", "a3"]).await;
    let (door, notes) = (door(), Notes::default());
    let (inside, seen) = (Arc::clone(&door), notes.clone());
    let handler = move |_: Context| {
        let inside = Arc::clone(&inside);
        seen.add("begun");
        async move { inside.acquire().await.unwrap().forget() }
    };
    let running = scene.worker(handler).start();
    eventually("the run is in hand", async || running.stats().in_hand == 3).await;
    notes.reach(1).await;
    let stopping = tokio::spawn(running.stop());
    settle_down().await;
    door.add_permits(3);
    let stopped = stopping.await.unwrap();
    assert_eq!((stopped.finished, stopped.given_back, notes.count()), (1, 2, 1));
    assert_eq!(scene.stats().await.pending, 2);
}
