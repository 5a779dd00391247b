//! A guarded queue: healthy messages stay in the broker, failed ones follow the store's road.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sickbay_core::port::{Desk, Overview, ProcessId};
use sickbay_core::{Failure, NewMessage, Verdict, WorkerName};
use sickbay_testkit::broker::{Broker, BrokerSource, BrokerStreams};
use sickbay_worker::{Context, Handler, Running, Worker};

use crate::scene::{Notes, Scene, door, eventually, settle_down};

pub(crate) fn guarded(scene: &Scene, broker: &Broker) -> Arc<BrokerSource> {
    Arc::new(BrokerSource {
        broker: broker.clone(),
        store: scene.store.clone(),
        queue: scene.queue.clone(),
        worker: WorkerName::new("worker-1").unwrap(),
        process: ProcessId(7),
        clock: scene.clock(),
        streams: BrokerStreams::default(),
    })
}

fn start(scene: &Scene, broker: &Broker, handler: impl Handler + 'static) -> Running {
    Worker::new(guarded(scene, broker), handler, scene.clock()).start()
}

fn publish(scene: &Scene, broker: &Broker, message: NewMessage) {
    broker.publish(message, sickbay_core::Clock::now(&scene.clock));
}

#[tokio::test]
async fn on_the_happy_path_nothing_is_written_to_the_store() {
    let (scene, broker) = (Scene::with_attempts(3).await, Broker::new());
    let notes = Notes::default();
    let seen = notes.clone();
    let running = start(&scene, &broker, move |ctx: Context| {
        seen.add(String::from_utf8_lossy(ctx.payload()));
        async {}
    });
    settle_down().await;
    for number in 0..20 {
        publish(&scene, &broker, scene.message(&number.to_string()));
    }
    eventually("all are acknowledged", async || broker.acknowledged() == 20).await;
    assert_eq!(notes.count(), 20);
    assert_eq!(scene.stats().await, Default::default(), "the store has heard of nothing");
    assert_eq!(running.stats().done, 20);
}

#[tokio::test]
async fn a_failed_message_is_adopted_and_acknowledged_and_retried_by_the_store() {
    let (scene, broker) = (Scene::with_attempts(3).await, Broker::new());
    let notes = Notes::default();
    let seen = notes.clone();
    let running = start(&scene, &broker, move |ctx: Context| {
        seen.add(format!("{} {}", String::from_utf8_lossy(ctx.payload()), ctx.attempt()));
        async move { if ctx.attempt() == 1 { Err("connection reset") } else { Ok(()) } }
    });
    publish(&scene, &broker, scene.message("a").header("tenant", "acme"));
    scene.failed(1).await;
    eventually("the broker is told", async || broker.acknowledged() == 1).await;
    assert_eq!((broker.waiting(), broker.unacknowledged()), (0, 0));
    scene.pass(10).await;
    scene.completed(1).await;
    assert_eq!(notes.all(), ["a 1", "a 2"]);
    let stats = scene.stats().await;
    assert_eq!((stats.pushed, stats.failures, stats.dead), (1, 1, 0));
    assert_eq!(running.stats().retried, 1);
}

#[tokio::test]
async fn poison_is_quarantined_with_its_bytes_and_does_not_hold_up_what_is_behind_it() {
    let (scene, broker) = (Scene::with_attempts(3).await, Broker::new());
    let _running = start(&scene, &broker, async |ctx: Context| match &ctx.payload()[..] {
        b"bad" => Verdict::poison(Failure::poison("no such type")),
        _ => Verdict::done(),
    });
    publish(&scene, &broker, scene.message("bad").header("tenant", "acme"));
    publish(&scene, &broker, scene.message("good"));
    scene.quarantined(1).await;
    eventually("both are acknowledged", async || broker.acknowledged() == 2).await;
    let view = scene.view(scene.dead().await[0].id).await;
    assert_eq!(view.message.payload, "bad");
    assert_eq!(view.message.headers, [("tenant".to_owned(), "acme".to_owned())]);
    assert_eq!(view.counters.failures, 1);
}

#[tokio::test]
async fn a_crash_between_adoption_and_acknowledgement_adopts_once() {
    let (scene, broker) = (Scene::with_attempts(3).await, Broker::new());
    let notes = Notes::default();
    let seen = notes.clone();
    let running = start(&scene, &broker, move |_: Context| {
        seen.add("run");
        async { Verdict::poison(Failure::poison("bad")) }
    });
    broker.lose_next_acknowledgement();
    publish(&scene, &broker, scene.message("a"));
    eventually("the broker is told at last", async || broker.acknowledged() == 1).await;
    assert_eq!(notes.count(), 2, "the broker delivered it again");
    let stats = scene.stats().await;
    assert_eq!((stats.dead, stats.pushed), (1, 1), "adopted once");
    assert_eq!(running.stats().lost, 1);
}

#[tokio::test]
async fn a_key_that_the_store_has_seen_done_is_acknowledged_without_running() {
    let (scene, broker) = (Scene::with_attempts(3).await, Broker::new());
    let key = || sickbay_core::Key::new("evt_1").unwrap();
    let notes = Notes::default();
    let seen = notes.clone();
    let _running = start(&scene, &broker, move |ctx: Context| {
        seen.add("run");
        async move { if ctx.attempt() == 1 { Err("connection reset") } else { Ok(()) } }
    });
    publish(&scene, &broker, scene.message("a").key(key()));
    scene.failed(1).await;
    scene.pass(10).await;
    scene.completed(1).await;
    assert!(scene.store.is_done(&scene.queue, &key()).await.unwrap());
    publish(&scene, &broker, scene.message("a").key(key()));
    eventually("the duplicate is acknowledged", async || broker.acknowledged() == 2).await;
    assert_eq!(notes.count(), 2, "the duplicate did not run");
}

#[tokio::test]
async fn stop_gives_untried_messages_back_to_the_broker_uncounted() {
    let (scene, broker) = (Scene::with_attempts(1).await, Broker::new());
    for number in 0..4 {
        publish(&scene, &broker, scene.message(&number.to_string()));
    }
    let door = door();
    let inside = Arc::clone(&door);
    let handler = move |_: Context| {
        let inside = Arc::clone(&inside);
        async move { inside.acquire().await.unwrap().forget() }
    };
    let running = Worker::new(guarded(&scene, &broker), handler, scene.clock()).concurrency(1).start();
    eventually("all are in hand", async || running.stats().in_hand == 4).await;
    let stopping = tokio::spawn(running.stop());
    settle_down().await;
    door.add_permits(1);
    assert_eq!(stopping.await.unwrap().given_back, 3);
    assert_eq!((broker.waiting(), broker.acknowledged()), (3, 1));
    door.add_permits(3);
    let inside = Arc::clone(&door);
    let _running = start(&scene, &broker, move |_: Context| {
        let inside = Arc::clone(&inside);
        async move { inside.acquire().await.unwrap().forget() }
    });
    eventually("the rest is handled", async || broker.acknowledged() == 4).await;
    assert_eq!(scene.stats().await.dead, 0, "the limit of one delivery was not reached");
}

fn of_stream(scene: &Scene, payload: &str) -> NewMessage {
    scene.message(payload).stream(sickbay_core::StreamKey::new("customer-7").unwrap())
}

/// Notes every run; what is called "bad" fails as long as it is told to.
fn keeping_order(notes: &Notes, fails: &Arc<AtomicBool>) -> impl Handler + use<> {
    let (seen, fails) = (notes.clone(), Arc::clone(fails));
    move |ctx: Context| {
        let name = String::from_utf8_lossy(ctx.payload()).into_owned();
        let bad = name.starts_with("bad") && fails.load(Ordering::SeqCst);
        seen.add(name);
        async move { if bad { Err("connection reset") } else { Ok(()) } }
    }
}

#[tokio::test]
async fn a_healthy_stream_of_a_broker_keeps_its_order_and_writes_nothing() {
    let (scene, broker, notes) = (Scene::with_attempts(3).await, Broker::new(), Notes::default());
    for number in 10..30 {
        publish(&scene, &broker, of_stream(&scene, &number.to_string()));
    }
    let handler = keeping_order(&notes, &Arc::default());
    let _running = Worker::new(guarded(&scene, &broker), handler, scene.clock()).concurrency(8).start();
    eventually("all are acknowledged", async || broker.acknowledged() == 20).await;
    assert_eq!(notes.all(), (10..30).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(scene.stats().await, Default::default(), "the store has heard of nothing");
}

#[tokio::test]
async fn later_messages_of_a_blocked_stream_are_adopted_behind_it() {
    let (scene, broker, notes) = (Scene::with_attempts(3).await, Broker::new(), Notes::default());
    let fails = Arc::new(AtomicBool::new(true));
    let _running = start(&scene, &broker, keeping_order(&notes, &fails));
    for payload in ["bad", "1", "2"] {
        publish(&scene, &broker, of_stream(&scene, payload));
    }
    publish(&scene, &broker, scene.message("free"));
    scene.failed(1).await;
    eventually("all are acknowledged", async || broker.acknowledged() == 4).await;
    publish(&scene, &broker, of_stream(&scene, "3"));
    eventually("what comes later follows", async || broker.acknowledged() == 5).await;
    fails.store(false, Ordering::SeqCst);
    assert_eq!(notes.count(), 2, "nothing ran past the head of its stream");
    scene.pass(10).await;
    scene.completed(4).await;
    let order: Vec<_> = notes.all().into_iter().filter(|name| name != "free").collect();
    assert_eq!(order, ["bad", "bad", "1", "2", "3"]);
    publish(&scene, &broker, of_stream(&scene, "4"));
    eventually("it flows again", async || broker.acknowledged() == 6).await;
    assert_eq!(scene.stats().await.pushed, 4, "the store had nothing to do with it");
}

#[tokio::test]
async fn a_replayed_head_of_a_brokers_stream_goes_before_those_that_were_adopted_behind_it() {
    let (scene, broker, notes) = (Scene::with_attempts(1).await, Broker::new(), Notes::default());
    let fails = Arc::new(AtomicBool::new(true));
    let _running = start(&scene, &broker, keeping_order(&notes, &fails));
    for payload in ["bad", "1"] {
        publish(&scene, &broker, of_stream(&scene, payload));
    }
    scene.quarantined(1).await;
    eventually("both are acknowledged", async || broker.acknowledged() == 2).await;
    assert_eq!(notes.all(), ["bad"]);
    fails.store(false, Ordering::SeqCst);
    let replay = sickbay_core::port::Replay::raw(scene.dead().await[0].id);
    scene.store.replay(vec![replay]).await.unwrap();
    scene.completed(2).await;
    assert_eq!(notes.all(), ["bad", "bad", "1"]);
}
