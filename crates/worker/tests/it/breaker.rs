//! The breaker in the worker (A14).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sickbay_core::breaker::BreakerPolicy;
use sickbay_core::stats::TypeGate;
use sickbay_core::{MessageType, QueuePolicy, Verdict, policy::RetryPolicy};
use sickbay_worker::Context;

use crate::scene::{Notes, SECOND, Scene, eventually, settle_down};

#[tokio::test]
async fn failures_that_pile_up_pause_their_type_and_a_probe_that_succeeds_opens_it_again() {
    let breaker =
        BreakerPolicy { failures_per_minute: 3, cool_down: 30 * SECOND, ..BreakerPolicy::default() };
    let retry = RetryPolicy::cooldown(10, 600 * SECOND);
    let policy = QueuePolicy { breaker: Some(breaker), ..QueuePolicy::with_retry(retry) };
    let scene = Scene::new(policy).await;
    let (paid, other) = (MessageType::new("OrderPaid").unwrap(), MessageType::new("Other").unwrap());
    let (healthy, notes) = (Arc::new(AtomicBool::new(false)), Notes::default());
    let (well, seen) = (Arc::clone(&healthy), notes.clone());
    let handler = move |ctx: Context| {
        let ill =
            ctx.message_type().is_some_and(|t| t.as_str() == "OrderPaid") && !well.load(Ordering::SeqCst);
        seen.add(ctx.message_type().unwrap().to_string());
        async move { if ill { Err("ledger: 503 service unavailable") } else { Ok(Verdict::done()) } }
    };
    let _running = scene.worker(handler).concurrency(1).prefetch(0).start();
    for number in 0..10 {
        scene.push_message(scene.message(&number.to_string()).message_type(paid.clone())).await;
    }
    let gate = async || scene.stats().await.paused_types.first().map(|(_, gate)| *gate);
    eventually("the type is paused", async || gate().await == Some(TypeGate::Tripped)).await;
    settle_down().await;
    assert_eq!(notes.count(), 4, "more than three failures");
    scene.push_message(scene.message("x").message_type(other)).await;
    scene.completed(1).await;

    scene.pass(30).await;
    notes.reach(6).await;
    settle_down().await;
    assert_eq!(notes.count(), 6, "one probe, which failed");
    assert_eq!(gate().await, Some(TypeGate::Tripped));

    healthy.store(true, Ordering::SeqCst);
    scene.pass(59).await;
    assert_eq!(notes.count(), 6, "the second cool-down is twice as long");
    scene.pass(1).await;
    scene.completed(1 + 10 - 5).await;
    assert_eq!(gate().await, None, "the probe succeeded");
}
