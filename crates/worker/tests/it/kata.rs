//! The kata of seed 003, on our own queue and on a guarded one: poison never holds up what is behind
//! it, transient failures are tried again up to the cap, and a replay is safe.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sickbay_core::gate::Invalid;
use sickbay_core::port::{Desk, Overview, Replay, Replayed, Source};
use sickbay_core::{Clock, Key, Kind, Message, MessageType, NewMessage};
use sickbay_testkit::broker::Broker;
use sickbay_worker::{Context, Running, Worker, typed};

use crate::broker::guarded;
use crate::scene::{Notes, Scene, eventually, settle_down};

#[derive(Clone, Serialize, Deserialize)]
struct OrderPaid {
    event_id: String,
    amount_cents: i64,
}

fn valid(message: &Message) -> Result<(), Invalid> {
    let event: OrderPaid =
        serde_json::from_slice(&message.payload).map_err(|error| Invalid::unreadable(error.to_string()))?;
    if event.amount_cents <= 0 {
        return Err(Invalid::new("amount_non_positive").at("/amount_cents"));
    }
    Ok(())
}

/// Where the messages come from.
enum Road {
    Own,
    Guarded(Broker),
}

struct Kata {
    scene: Scene,
    road: Road,
    ledger: Notes,
    _running: Running,
}

impl Kata {
    /// A consumer that writes each paid order into the ledger; `fails` says which attempts do not.
    async fn on(road: Road, attempts: u32, fails: fn(&Context) -> bool) -> Self {
        let scene = Scene::with_attempts(attempts).await;
        let source: Arc<dyn Source> = match &road {
            Road::Own => scene.source.clone(),
            Road::Guarded(broker) => guarded(&scene, broker),
        };
        let ledger = Notes::default();
        let book = ledger.clone();
        let handler = typed(move |event: OrderPaid, ctx: Context| {
            let (book, failing) = (book.clone(), fails(&ctx));
            async move {
                if failing {
                    return Err("downstream_5xx: 503 service unavailable");
                }
                book.add(event.event_id);
                Ok(())
            }
        });
        let _running = Worker::new(source, handler, scene.clock()).validator(valid).start();
        Self { scene, road, ledger, _running }
    }

    async fn publish(&self, event_id: &str, amount_cents: i64) {
        let event = OrderPaid { event_id: event_id.to_owned(), amount_cents };
        let message = NewMessage::new(self.scene.queue.clone(), serde_json::to_vec(&event).unwrap())
            .message_type(MessageType::new("OrderPaid").unwrap())
            .key(Key::new(event_id).unwrap());
        match &self.road {
            Road::Own => drop(self.scene.push_message(message).await),
            Road::Guarded(broker) => drop(broker.publish(message, self.scene.clock.now())),
        }
    }
}

/// Both roads, one after the other.
fn roads() -> [Road; 2] {
    [Road::Own, Road::Guarded(Broker::new())]
}

#[tokio::test]
async fn poison_is_quarantined_and_the_consumer_goes_on() {
    for road in roads() {
        let kata = Kata::on(road, 3, |_| false).await;
        kata.publish("evt_poison", 0).await;
        kata.publish("evt_ok", 1000).await;
        kata.ledger.reach(1).await;
        kata.scene.quarantined(1).await;
        assert_eq!(kata.ledger.all(), ["evt_ok"]);
        let dead = kata.scene.dead().await;
        assert_eq!((dead[0].kind, dead[0].error.as_str()), (Kind::Poison, "amount_non_positive"));
    }
}

#[tokio::test]
async fn a_transient_failure_is_tried_again_and_succeeds() {
    for road in roads() {
        let kata = Kata::on(road, 3, |ctx| ctx.attempt() == 1).await;
        kata.publish("evt_transient", 1000).await;
        kata.scene.failed(1).await;
        kata.scene.pass(10).await;
        kata.scene.completed(1).await;
        assert_eq!(kata.ledger.all(), ["evt_transient"]);
        assert_eq!(kata.scene.stats().await.dead, 0);
    }
}

#[tokio::test]
async fn a_transient_failure_that_reaches_the_cap_is_quarantined() {
    for road in roads() {
        let kata = Kata::on(road, 2, |_| true).await;
        kata.publish("evt_cap", 1000).await;
        kata.scene.failed(1).await;
        kata.scene.pass(10).await;
        kata.scene.quarantined(1).await;
        let dead = kata.scene.dead().await;
        assert_eq!((dead[0].kind, dead[0].counters.failures), (Kind::Transient, 2), "exactly two attempts");
        let key = Key::new("evt_cap").unwrap();
        assert!(!kata.scene.store.is_done(&kata.scene.queue, &key).await.unwrap());
        assert_eq!(kata.ledger.count(), 0);
    }
}

#[tokio::test]
async fn a_replay_with_a_fix_works_and_stays_idempotent() {
    for road in roads() {
        let kata = Kata::on(road, 3, |_| false).await;
        kata.publish("evt_fixme", -5).await;
        kata.scene.quarantined(1).await;
        let id = kata.scene.dead().await[0].id;
        let fixed = OrderPaid { event_id: "evt_fixme".to_owned(), amount_cents: 500 };
        let payload = Some(serde_json::to_vec(&fixed).unwrap().into());
        let replay = Replay { id, queue: None, payload };
        let answers = kata.scene.store.replay(vec![replay.clone(), replay]).await.unwrap();
        assert_eq!(answers[0], Replayed::Done);
        assert!(matches!(answers[1], Replayed::Refused { .. }), "it is sent back once");
        kata.scene.completed(1).await;
        // A duplicate of the event arrives after all.
        kata.publish("evt_fixme", 500).await;
        settle_down().await;
        if let Road::Guarded(broker) = &kata.road {
            eventually("the duplicate is acknowledged", async || broker.acknowledged() == 2).await;
        }
        assert_eq!(kata.ledger.all(), ["evt_fixme"], "in the ledger once");
    }
}
