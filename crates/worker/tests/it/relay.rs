//! A queue as an outbox: stage by stage to an event store and a transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sickbay_core::verdict::{Done, Effect};
use sickbay_core::{Kind, Stages, Verdict};
use sickbay_worker::{Context, Handler, Relay};

use crate::scene::{Notes, Scene};

/// Notes what it gets; fails as long as it is told to.
fn sink(name: &'static str, notes: &Notes, down: &Arc<AtomicBool>) -> impl Handler + use<> {
    let (seen, down) = (notes.clone(), Arc::clone(down));
    move |ctx: Context| {
        let fails = down.load(Ordering::SeqCst);
        seen.add(format!("{name} {}{}", ctx.attempt(), if fails { " fails" } else { "" }));
        async move { if fails { Err("connection reset") } else { Ok(()) } }
    }
}

#[tokio::test]
async fn a_relay_resumes_after_the_last_finished_stage() {
    let (scene, notes) = (Scene::with_attempts(5).await, Notes::default());
    let (no_events, no_transport) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
    let relay =
        Relay::to(sink("publish", &notes, &no_transport)).storing_events(sink("event", &notes, &no_events));
    let id = scene.push("order").await;
    let _running = scene.worker(relay).start();
    scene.failed(1).await;
    let stages = scene.view(id).await.stages;
    assert_eq!(stages, Stages::STORED.with(Stages::FAILED));
    no_events.store(false, Ordering::SeqCst);
    scene.pass(10).await;
    crate::scene::eventually("it fails at the transport", async || notes.count() == 3).await;
    scene.failed(1).await;
    let stages = scene.view(id).await.stages;
    assert_eq!(stages, Stages::STORED.with(Stages::EVENT_STORED).with(Stages::FAILED));
    no_transport.store(false, Ordering::SeqCst);
    scene.pass(10).await;
    scene.completed(1).await;
    assert_eq!(notes.all(), ["event 1 fails", "event 2", "publish 2 fails", "publish 3"]);
}

#[tokio::test]
async fn a_message_that_cannot_be_published_is_quarantined_with_its_stages_and_resumes_when_replayed() {
    use sickbay_core::port::{Desk, Replay};
    let (scene, notes) = (Scene::with_attempts(1).await, Notes::default());
    let down = Arc::new(AtomicBool::new(true));
    let relay =
        Relay::to(sink("publish", &notes, &down)).storing_events(sink("event", &notes, &Arc::default()));
    let id = scene.push("order").await;
    let _running = scene.worker(relay).start();
    scene.quarantined(1).await;
    assert!(scene.view(id).await.stages.has(Stages::EVENT_STORED));
    down.store(false, Ordering::SeqCst);
    scene.store.replay(vec![Replay::raw(id)]).await.unwrap();
    scene.completed(1).await;
    assert_eq!(notes.all(), ["event 1", "publish 1 fails", "publish 2"]);
}

#[tokio::test]
async fn a_sink_with_writes_of_its_own_is_refused_before_anything_is_published() {
    let (scene, notes) = (Scene::with_attempts(3).await, Notes::default());
    let writes = async |_: Context| Verdict::Done(Done { effect: Some(Effect::new(())) });
    let relay = Relay::to(sink("publish", &notes, &Arc::default())).storing_events(writes);
    let id = scene.push("order").await;
    let _running = scene.worker(relay).start();
    scene.quarantined(1).await;
    assert_eq!(scene.view(id).await.dead.unwrap().kind, Kind::Poison);
    assert_eq!(notes.count(), 0);
}

#[cfg(feature = "http")]
#[tokio::test]
async fn an_event_store_behind_http_is_not_asked_again_when_the_transport_was_down() {
    use sickbay_worker::http::HttpHandler;
    let (scene, endpoint) = (Scene::with_attempts(3).await, crate::http::Endpoint::start());
    let sink = |path: &str| HttpHandler::new(&endpoint.url(path), scene.clock()).unwrap();
    let id = scene.push("order").await;
    let _running = scene.worker(Relay::to(sink("attempt/2")).storing_events(sink("attempt/1"))).start();
    crate::foreign::comes_true(async || scene.stats().await.failed == 1).await;
    assert_eq!(scene.view(id).await.history.len(), 1);
    scene.pass(10).await;
    crate::foreign::comes_true(async || scene.stats().await.completed == 1).await;
}
