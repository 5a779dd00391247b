//! A store with everything in it, and how two stores are compared.

use std::fmt::Write as _;
use std::time::Duration;

use sickbay_core::decide::SetAside;
use sickbay_core::policy::{Ordering, RetryPolicy};
use sickbay_core::port::{Adoption, Claim, Exchange, ProcessId, Pushed, Replay, Replayed, Store};
use sickbay_core::quarantine::{PageRequest, QuarantineFilter};
use sickbay_core::settlement::Settled;
use sickbay_core::signature::Signature;
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    Clock, Counters, Decision, Delivery, Failure, Key, MessageId, MessageType, NewMessage, Priority,
    QueueName, QueuePolicy, Settlement, Stages, StreamKey, WorkerName,
};
use sickbay_testkit::ManualClock;

/// The process that works on every store of these tests.
const WORKER: ProcessId = ProcessId(4242);

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn kind(name: &str) -> MessageType {
    MessageType::new(name).unwrap()
}

fn stream(name: &str) -> StreamKey {
    StreamKey::new(name).unwrap()
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// An error whose end is kept apart from its beginning.
fn long_error(about: &str) -> String {
    format!("{about}: broke\n{}", "  at frame()\n".repeat(300))
}

/// Works on a store.
pub(crate) struct Hand<'s> {
    pub(crate) store: &'s dyn Store,
    pub(crate) clock: &'s ManualClock,
}

impl Hand<'_> {
    async fn push(&self, message: NewMessage) -> MessageId {
        match self.store.push(vec![message]).await.unwrap().as_slice() {
            [Pushed::New(id)] => *id,
            other => panic!("not one new message: {other:?}"),
        }
    }

    pub(crate) async fn claim_as(&self, of: &str, max: u32, process: ProcessId) -> Vec<Delivery> {
        let worker = WorkerName::new("host/1/worker").unwrap();
        let claim =
            Claim { queue: queue(of), worker, process, max, wait: Duration::ZERO, lease: seconds(30) };
        self.store.exchange(Exchange::claim(claim)).await.unwrap().deliveries
    }

    pub(crate) async fn claim(&self, of: &str, max: u32) -> Vec<Delivery> {
        self.claim_as(of, max, WORKER).await
    }

    async fn one(&self, of: &str) -> Delivery {
        self.claim(of, 1).await.pop().unwrap()
    }

    async fn settle(&self, settlement: Settlement) {
        let settled = self.store.exchange(Exchange::settle(vec![settlement])).await.unwrap().settled;
        assert_eq!(settled, [Settled::Applied]);
    }

    async fn done(&self, delivery: &Delivery) {
        self.settle(Settlement::complete(delivery.token())).await;
    }

    async fn retry(&self, delivery: &Delivery, after: u64, failure: Failure) {
        let decision = Decision::Retry { after: seconds(after), failure };
        let output = Some("the last words\nof the handler".to_owned());
        let (ran, stages) = (Some(Duration::from_micros(1234)), Stages::EVENT_STORED);
        self.settle(Settlement { output, ran, stages, ..Settlement::new(delivery.token(), decision) }).await;
    }

    async fn quarantine(&self, delivery: &Delivery, failure: Failure) {
        let set_aside = SetAside::NonRetryableError;
        let signature = Some(Signature::from_bits(0xfeed_beef_0000_0001));
        let decision = Decision::Quarantine { set_aside, failure };
        self.settle(Settlement { signature, ..Settlement::new(delivery.token(), decision) }).await;
    }

    async fn dead(&self, message: NewMessage) -> MessageId {
        let of = message.queue.clone();
        let id = self.push(message).await;
        let delivery = self.one(of.as_str()).await;
        assert_eq!(delivery.message.id, id);
        self.quarantine(&delivery, Failure::poison(long_error("Ungültig")).code("E7")).await;
        id
    }

    fn pass(&self, count: u64) {
        self.clock.advance(seconds(count));
    }

    /// Everything that a store can hold.
    pub(crate) async fn fill(&self) {
        let retrying = QueuePolicy::with_retry(RetryPolicy::cooldown(5, seconds(60)));
        let kept = QueuePolicy { keep_completed: seconds(36_000), ..retrying.clone() };
        let available = QueuePolicy { ordering: Ordering::Available, ..retrying.clone() };
        let names = ["plain", "orders", "keys", "gated", "paused", "adopted", "suspects", "empty"];
        for name in names {
            self.store.define_queue(&queue(name), retrying.clone()).await.unwrap();
        }
        self.store.define_queue(&queue("kept"), kept).await.unwrap();
        self.store.define_queue(&queue("open"), available).await.unwrap();
        self.fill_quarantine().await;
        self.fill_streams().await;
        self.fill_keys().await;
        self.fill_kept().await;
        self.fill_adopted().await;
        self.fill_suspects().await;
        self.fill_plain().await;
        self.fill_gated().await;
        self.store.sweep().await.unwrap();
    }

    async fn fill_quarantine(&self) {
        let message = |text: &str| NewMessage::new(queue("plain"), text.to_owned());
        let mut dead = Vec::new();
        for name in ["first", "second", "third", "fourth", "fifth", "sixth", "seventh"] {
            self.pass(1);
            dead.push(self.dead(message(name).message_type(kind("Order")).header("n", name)).await);
        }
        let by_hand = self.push(message("by hand")).await;
        self.store.dead_letter(vec![by_hand], "a person said so".to_owned()).await.unwrap();
        self.pass(1);
        let done = |answers: Vec<Replayed>| assert!(answers.iter().all(|answer| *answer == Replayed::Done));
        done(
            self.store.discard(vec![dead[1], dead[3], dead[4]], "not needed\u{0}".to_owned()).await.unwrap(),
        );
        done(self.store.restore(vec![dead[4]]).await.unwrap());
        self.pass(1);
        done(self.store.discard(vec![dead[2]], "old".to_owned()).await.unwrap());
        assert_eq!(self.store.purge(&queue("plain"), Duration::ZERO, 1).await.unwrap(), 1);
        let changed = Replay { id: dead[5], queue: None, payload: Some("mended".into()) };
        let elsewhere = Replay { id: dead[6], queue: Some(queue("paused")), payload: None };
        done(self.store.replay(vec![changed, elsewhere]).await.unwrap());
        let again = self.one("plain").await;
        self.quarantine(&again, Failure::poison("still broken").code("E8")).await;
    }

    async fn fill_streams(&self) {
        for (of, name) in [("orders", "held"), ("orders", "late"), ("orders", "free"), ("orders", "let out")]
        {
            for part in 0..4 {
                let text = format!("{name} {part}");
                let message = NewMessage::new(queue(of), text).stream(stream(name));
                self.push(message.priority(Priority::new(5).unwrap())).await;
            }
        }
        let deliveries = self.claim("orders", 1).await;
        self.quarantine(&deliveries[0], Failure::poison("the head is bad")).await;
        let deliveries = self.claim("orders", 1).await;
        assert_eq!(deliveries[0].message.stream, Some(stream("late")));
        self.retry(&deliveries[0], 600, Failure::transient("later")).await;
        let run = self.claim("orders", 4).await;
        assert_eq!(run.len(), 4);
        for delivery in &run {
            self.settle(Settlement::release(delivery.token())).await;
        }
        let run = self.claim("orders", 16).await;
        for delivery in run {
            let is_let_out = delivery.message.stream == Some(stream("let out"));
            let decision = Decision::Retry { after: seconds(300), failure: Failure::transient("aside") };
            let settlement = Settlement::new(delivery.token(), decision);
            match is_let_out {
                true => self.settle(Settlement { cascade: true, ..settlement }).await,
                false => self.settle(Settlement::release(delivery.token())).await,
            }
        }
        for part in 0..3 {
            let message = NewMessage::new(queue("open"), format!("open {part}")).stream(stream("s"));
            self.push(message.delay(seconds(part * 7))).await;
        }
        let first = self.one("open").await;
        self.retry(&first, 40, Failure::transient("no route")).await;
        // A dead letter of a stream that has nothing else.
        let alone = NewMessage::new(queue("open"), "alone").stream(stream("gone"));
        let alone = self.push(alone.priority(Priority::new(9).unwrap())).await;
        self.store.dead_letter(vec![alone], "out".to_owned()).await.unwrap();
    }

    async fn fill_keys(&self) {
        let keyed = |name: &str| NewMessage::new(queue("keys"), name.to_owned()).key(key(name));
        self.dead(keyed("dead")).await;
        self.push(keyed("done")).await;
        let delivery = self.one("keys").await;
        self.done(&delivery).await;
        self.push(keyed("live №1")).await;
        self.push(keyed("cancelled")).await;
        let cancelled = self.push(NewMessage::new(queue("keys"), "x")).await;
        self.store.cancel(vec![cancelled]).await.unwrap();
        let again = self.store.push(vec![keyed("live №1"), keyed("done")]).await.unwrap();
        assert!(again.iter().all(|pushed| matches!(pushed, Pushed::Duplicate(_))));
    }

    async fn fill_kept(&self) {
        for name in ["good", "bad then good", "mended"] {
            let message = NewMessage::new(queue("kept"), name.to_owned()).key(key(name)).header("a", "");
            self.push(message.stream(stream("k")).deadline(seconds(9999))).await;
            let delivery = self.one("kept").await;
            match name {
                "good" => self.done(&delivery).await,
                "mended" => {
                    self.quarantine(&delivery, Failure::poison("mend me")).await;
                    let payload = Some("mended bytes".into());
                    let replay = Replay { id: delivery.message.id, queue: None, payload };
                    self.store.replay(vec![replay]).await.unwrap();
                    let delivery = self.one("kept").await;
                    self.done(&delivery).await;
                }
                _ => {
                    self.retry(&delivery, 0, Failure::transient(long_error("once"))).await;
                    let delivery = self.one("kept").await;
                    self.done(&delivery).await;
                }
            }
            self.pass(2);
        }
        self.push(NewMessage::new(queue("kept"), "plain")).await;
        let delivery = self.one("kept").await;
        self.done(&delivery).await;
    }

    fn adoption(&self, origin: &str, decision: Decision) -> Adoption {
        let counters = Counters { deliveries: 3, failures: 1, releases: 1, ..Counters::default() };
        Adoption {
            message: NewMessage::new(queue("adopted"), origin.to_owned()).message_type(kind("Adopted")),
            origin: format!("broker/{origin}"),
            counters,
            started_at: self.clock.now(),
            worker: "broker worker".to_owned(),
            decision,
            signature: Some(Signature::from_bits(77)),
            stages: Stages::STORED,
        }
    }

    async fn fill_adopted(&self) {
        let failure = Failure::transient("elsewhere").retry_after(seconds(3));
        let retry = Decision::Retry { after: seconds(30), failure };
        let set_aside = SetAside::PoisonMessage;
        let bury = Decision::Quarantine { set_aside, failure: Failure::poison("bad from the start") };
        let adoptions = vec![
            self.adoption("1", retry),
            self.adoption("2", bury),
            self.adoption("3", Decision::Release { after: Duration::ZERO }),
        ];
        self.store.adopt(adoptions).await.unwrap();
        self.pass(1);
    }

    async fn fill_suspects(&self) {
        let message = |text: &str| NewMessage::new(queue("suspects"), text.to_owned());
        for text in ["a", "b", "c", "d"] {
            self.push(message(text).message_type(kind(text))).await;
        }
        let dying = ProcessId(77);
        assert_eq!(self.claim_as("suspects", 2, dying).await.len(), 2);
        self.store.process_died(dying, "signal 9".to_owned()).await.unwrap();
        let lost = self.claim_as("suspects", 1, ProcessId(78)).await;
        assert!(lost[0].suspect);
        // Its lease runs out under a living worker.
        self.pass(40);
        self.store.sweep().await.unwrap();
        let spent = self.push(message("spent")).await;
        self.pass(1);
        let later = self.push(message("later").delay(seconds(900))).await;
        self.store.hasten(vec![later]).await.unwrap();
        self.store.dead_letter(vec![spent], "enough".to_owned()).await.unwrap();
    }

    async fn fill_plain(&self) {
        for priority in [0, 9, 4, 4, 7] {
            let message = NewMessage::new(queue("plain"), vec![0u8, 255, 10, priority, 200]);
            let message = message.priority(Priority::new(priority).unwrap()).header("ü\u{0}", "x\ny");
            self.push(message.deadline(seconds(5000)).message_type(kind("Order"))).await;
            self.pass(1);
        }
        self.push(NewMessage::new(queue("plain"), "").delay(seconds(120))).await;
        let staged = NewMessage { stages: Stages::PUBLISHED, ..NewMessage::new(queue("plain"), "staged") };
        self.push(staged).await;
        let delivery = self.one("plain").await;
        let failure = Failure { schema_path: Some("/a/b".into()), ..Failure::transient(long_error("Netz")) };
        self.retry(&delivery, 500, failure.code("503").retry_after(seconds(9))).await;
        let reset = self.one("plain").await;
        self.retry(&reset, 50, Failure::unknown("who knows")).await;
        assert_eq!(self.store.reset_attempts(vec![reset.message.id]).await.unwrap(), [Replayed::Done]);
        let back = self.one("plain").await;
        self.settle(Settlement::new(back.token(), Decision::Release { after: seconds(8) })).await;
        let now = self.one("plain").await;
        self.retry(&now, 0, Failure::transient("at once")).await;
        for number in 0..30 {
            self.push(NewMessage::new(queue("plain"), format!("fresh {number}"))).await;
        }
        self.store.set_paused(&queue("paused"), true).await.unwrap();
    }

    async fn fill_gated(&self) {
        let of = queue("gated");
        for name in ["Stopped", "Tripped", "Probed", "Free"] {
            for part in 0..3 {
                let message = NewMessage::new(of.clone(), format!("{name} {part}"));
                self.push(message.message_type(kind(name))).await;
            }
        }
        self.store.set_type_gate(&of, &kind("Stopped"), TypeGate::Paused).await.unwrap();
        self.store.set_type_gate(&of, &kind("Tripped"), TypeGate::Tripped).await.unwrap();
        self.store.set_type_gate(&of, &kind("Probed"), TypeGate::Probing { left: 0 }).await.unwrap();
        let free = self.claim("gated", 1).await;
        assert_eq!(free[0].message.message_type, Some(kind("Free")), "the others are held back");
        self.done(&free[0]).await;
    }

    /// Everything that can be seen of a store.
    pub(crate) async fn picture(&self) -> String {
        let mut picture = String::new();
        for (name, policy) in self.store.queues().await.unwrap() {
            let stats = self.store.stats(&name).await.unwrap();
            assert!(stats.adds_up(), "{name}: {stats:?}");
            writeln!(picture, "{name} {policy:?}\n{stats:#?}").unwrap();
            for view in self.store.streams(&name, 1000).await.unwrap() {
                let detail = self.store.stream(&name, &view.key, 1000).await.unwrap();
                writeln!(picture, "{view:?}\n{detail:?}").unwrap();
            }
            for name_of_key in ["dead", "done", "live №1", "cancelled", "good", "nothing"] {
                let done = self.store.is_done(&name, &key(name_of_key)).await.unwrap();
                writeln!(picture, "{name_of_key} done: {done}").unwrap();
            }
        }
        for discarded in [false, true] {
            let filter = QuarantineFilter { discarded, ..QuarantineFilter::default() };
            let page = self.store.quarantine(&filter, PageRequest::default()).await.unwrap();
            let filter = QuarantineFilter { error_contains: Some("UNGÜLTIG".into()), ..filter };
            let count = self.store.quarantine_count(&filter).await.unwrap();
            writeln!(picture, "{:#?}\n{count}", page.rows).unwrap();
        }
        for number in 1..200 {
            let id = MessageId::from_number(number).unwrap();
            let view = self.store.find(id.to_string().parse().unwrap()).await.unwrap();
            if let Some(view) = view {
                writeln!(picture, "{view:#?}").unwrap();
            }
        }
        picture
    }

    /// What happens to a store from now on: everything is tried, and each answer written down.
    pub(crate) async fn live_on(&self) -> String {
        let mut life = String::new();
        let next = self.push(NewMessage::new(queue("empty"), "next")).await;
        writeln!(life, "next {}", next.number()).unwrap();
        let keyed = |name: &str| NewMessage::new(queue("keys"), name.to_owned()).key(key(name));
        for name in ["live №1", "done", "cancelled", "dead", "new"] {
            writeln!(life, "{name} {:?}", self.store.push(vec![keyed(name)]).await.unwrap()).unwrap();
        }
        let adoption = self.adoption("2", Decision::Release { after: Duration::ZERO });
        writeln!(life, "{:?}", self.store.adopt(vec![adoption]).await.unwrap()).unwrap();
        self.store.set_paused(&queue("paused"), false).await.unwrap();
        for name in ["Stopped", "Tripped", "Probed"] {
            self.store.set_type_gate(&queue("gated"), &kind(name), TypeGate::Open).await.unwrap();
        }
        let rows =
            self.store.quarantine(&QuarantineFilter::default(), PageRequest::default()).await.unwrap().rows;
        for (at, row) in rows.iter().enumerate() {
            let answer = match at % 3 {
                0 => self.store.replay(vec![Replay::raw(row.id)]).await.unwrap(),
                1 => self.store.discard(vec![row.id], "enough".to_owned()).await.unwrap(),
                _ => continue,
            };
            writeln!(life, "{} {answer:?}", row.id.number()).unwrap();
        }
        for _ in 0..5 {
            for (name, _) in self.store.queues().await.unwrap() {
                self.drain(name.as_str(), &mut life).await;
            }
            self.pass(250);
            self.store.sweep().await.unwrap();
        }
        writeln!(life, "{}", self.picture().await).unwrap();
        life
    }

    /// Takes one after the other; every fifth fails once more.
    async fn drain(&self, of: &str, life: &mut String) {
        let mut turn = 0;
        while let Some(delivery) = self.claim(of, 1).await.pop() {
            turn += 1;
            let message = &delivery.message;
            writeln!(life, "{of} {} {:?} {:?}", message.id.number(), delivery.counters, delivery.cause)
                .unwrap();
            match turn % 5 {
                0 => self.retry(&delivery, 30, Failure::transient("once more")).await,
                _ => self.done(&delivery).await,
            }
        }
    }
}
