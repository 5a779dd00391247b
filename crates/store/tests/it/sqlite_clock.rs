//! A store that is opened at an earlier time than it was closed at: the machine's clock has been set back.

use std::sync::Arc;
use std::time::Duration;

use sickbay_core::message::Status;
use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, Overview, Pushed, Pusher};
use sickbay_core::{
    Clock, Decision, Delivery, Failure, Key, Kind, MessageId, NewMessage, QueueName, QueuePolicy, Reason,
    Settlement, StreamKey, Timestamp, WorkerName,
};
use sickbay_store::{SqliteOptions, SqliteStore};
use sickbay_testkit::ManualClock;
use tempfile::TempDir;

struct Scene {
    folder: TempDir,
    clock: ManualClock,
    store: Option<SqliteStore>,
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

fn message(text: &'static str) -> NewMessage {
    NewMessage::new(queue(), text)
}

impl Scene {
    async fn new() -> Self {
        let mut scene = Self { folder: TempDir::new().unwrap(), clock: ManualClock::new(), store: None };
        scene.open();
        let policy = QueuePolicy { key_window: Duration::from_secs(100), ..QueuePolicy::default() };
        scene.store().define_queue(&queue(), policy).await.unwrap();
        scene
    }

    fn open(&mut self) {
        self.store = None;
        let options = SqliteOptions::new(Arc::new(self.clock.clone())).log_bytes(0);
        self.store = Some(SqliteStore::open(self.folder.path().join("store.db"), options).unwrap());
    }

    fn store(&self) -> &SqliteStore {
        self.store.as_ref().unwrap()
    }

    /// Ends the store as a crash would; what it held comes back as suspects, one at a time.
    fn crash(&self) {
        self.store().crash();
    }

    /// Closes the store, sets the clock by so many seconds, and opens it again.
    fn open_later_by(&mut self, seconds: i64) {
        self.store = None;
        self.clock.set(Timestamp::from_millis(self.clock.now().millis() + 1000 * seconds));
        self.open();
    }

    async fn push(&self, message: NewMessage) -> MessageId {
        match self.store().push(vec![message]).await.unwrap()[..] {
            [Pushed::New(id)] => id,
            ref other => panic!("{other:?}"),
        }
    }

    async fn take(&self, max: u32) -> Vec<Delivery> {
        let worker = WorkerName::new("w").unwrap();
        let (process, lease) = (self.store().process(), Duration::from_secs(30));
        let claim = Claim { queue: queue(), worker, process, max, wait: Duration::ZERO, lease };
        self.store().exchange(Exchange::claim(claim)).await.unwrap().deliveries
    }

    async fn ids(&self) -> Vec<MessageId> {
        let mut ids: Vec<MessageId> =
            self.take(10).await.iter().map(|delivery| delivery.message.id).collect();
        ids.sort();
        ids
    }

    async fn settle(&self, delivery: &Delivery, decision: Decision) {
        let settlement = Settlement::new(delivery.token(), decision);
        self.store().exchange(Exchange::settle(vec![settlement])).await.unwrap();
    }
}

const BACK: [i64; 4] = [0, -1, -3_600, -10 * 365 * 86_400];

#[tokio::test]
async fn what_was_due_is_due_although_the_clock_was_set_back() {
    for back in BACK {
        let mut scene = Scene::new().await;
        let held = scene.push(message("held when it was closed")).await;
        assert_eq!(scene.ids().await, [held]);
        let plain = scene.push(message("plain")).await;
        let first = scene.push(message("first of its stream").stream(StreamKey::new("s").unwrap())).await;
        scene.open_later_by(back);
        let shown = scene.store().find(plain.to_string().parse().unwrap()).await.unwrap();
        assert_eq!(shown.map(|view| view.status), Some(Status::Pending), "{back}");
        let stats = scene.store().stats(&queue()).await.unwrap();
        assert_eq!((stats.pending, stats.scheduled), (3, 0), "{back}");
        assert_eq!(scene.ids().await, [held, plain, first], "{back}");
    }
}

#[tokio::test]
async fn a_delay_keeps_its_length_although_nothing_happened_before_the_store_was_closed() {
    let mut scene = Scene::new().await;
    let id = scene.push(message("in an hour").delay(Duration::from_secs(3600))).await;
    scene.clock.advance(Duration::from_secs(50 * 60));
    scene.open_later_by(-30 * 60);
    scene.clock.advance(Duration::from_secs(10 * 60 - 1));
    assert!(scene.ids().await.is_empty());
    scene.clock.advance(Duration::from_secs(1));
    assert_eq!(scene.ids().await, [id]);
}

#[tokio::test]
async fn what_was_in_hand_at_a_crash_is_due_although_the_clock_was_set_back() {
    for back in BACK {
        let mut scene = Scene::new().await;
        let held = scene.push(message("held")).await;
        assert_eq!(scene.ids().await, [held]);
        scene.crash();
        scene.open_later_by(back);
        assert_eq!(scene.ids().await, [held], "{back}");
    }
}

#[tokio::test]
async fn what_is_given_back_or_freed_is_due_although_the_clock_was_set_back() {
    for back in BACK {
        let mut scene = Scene::new().await;
        let plain = scene.push(message("plain")).await;
        scene.open_later_by(back);
        let delivery = scene.take(1).await.remove(0);
        scene.settle(&delivery, Decision::Release { after: Duration::ZERO }).await;
        assert_eq!(scene.ids().await, [plain], "{back}");

        let mut scene = Scene::new().await;
        let stream = StreamKey::new("s").unwrap();
        scene.push(message("first").stream(stream.clone())).await;
        let second = scene.push(message("second").stream(stream)).await;
        scene.open_later_by(back);
        let delivery = scene.take(1).await.remove(0);
        scene.settle(&delivery, Decision::Complete).await;
        assert_eq!(scene.ids().await, [second], "{back}");
    }
}

#[tokio::test]
async fn a_message_in_a_stream_keeps_its_delay_although_the_clock_was_set_back() {
    for back in BACK {
        let mut scene = Scene::new().await;
        let stream = StreamKey::new("s").unwrap();
        let first = scene.push(message("first").stream(stream.clone())).await;
        let second = scene.push(message("second").stream(stream).delay(Duration::from_secs(10))).await;
        scene.open_later_by(back);
        let delivery = scene.take(1).await.remove(0);
        assert_eq!(delivery.message.id, first);
        scene.settle(&delivery, Decision::Complete).await;
        assert_eq!(scene.ids().await, [], "{back}: too early");
        scene.clock.advance(Duration::from_secs(10));
        assert_eq!(scene.ids().await, [second], "{back}");
    }
}

#[tokio::test]
async fn what_was_scheduled_waits_as_long_as_it_was_meant_to_although_the_clock_was_set_back() {
    for back in BACK {
        let mut scene = Scene::new().await;
        let failed = scene.push(message("failed")).await;
        let delivery = scene.take(1).await.remove(0);
        let failure = Failure::new(Kind::Transient, Reason::Unknown, "no answer");
        scene.settle(&delivery, Decision::Retry { after: Duration::from_secs(10), failure }).await;
        let stream = StreamKey::new("s").unwrap();
        let delayed = scene.push(message("delayed").delay(Duration::from_secs(10)).stream(stream)).await;
        scene.push(message("endless").delay(Duration::MAX)).await;
        scene.open_later_by(back);
        assert_eq!(scene.ids().await, [], "{back}: too early");
        scene.clock.advance(Duration::from_secs(9));
        assert_eq!(scene.ids().await, [], "{back}: too early");
        scene.clock.advance(Duration::from_secs(1));
        assert_eq!(scene.ids().await, [failed, delayed], "{back}");
        scene.clock.advance(Duration::from_secs(20 * 365 * 86_400));
        scene.store().sweep().await.unwrap();
        assert_eq!(scene.ids().await, [failed, delayed], "{back}: an endless delay came to its end");
    }
}

#[tokio::test]
async fn a_key_is_known_as_long_as_its_window_says_although_the_clock_was_set_back() {
    for back in BACK {
        let mut scene = Scene::new().await;
        let key = Key::new("k").unwrap();
        let first = scene.push(message("a").key(key.clone())).await;
        let delivery = scene.take(1).await.remove(0);
        scene.settle(&delivery, Decision::Complete).await;
        scene.open_later_by(back);
        scene.clock.advance(Duration::from_secs(99));
        let again = scene.store().push(vec![message("b").key(key.clone())]).await.unwrap();
        assert_eq!(again, [Pushed::Duplicate(first)], "{back}");
        scene.clock.advance(Duration::from_secs(1));
        scene.store().sweep().await.unwrap();
        scene.push(message("c").key(key)).await;
    }
}

#[tokio::test]
async fn a_clock_that_went_on_moves_nothing() {
    let mut scene = Scene::new().await;
    let delayed = scene.push(message("delayed").delay(Duration::from_secs(10))).await;
    scene.open_later_by(9);
    assert_eq!(scene.ids().await, []);
    scene.open_later_by(1);
    assert_eq!(scene.ids().await, [delayed]);
}
