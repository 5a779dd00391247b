//! The steps of a script.

use std::time::Duration;

use bytes::Bytes;
use sickbay_core::decide::{Facts, Outcome, SetAside, decide};
use sickbay_core::message::Priority;
use sickbay_core::port::{Adoption, Claim, Deliveries, Desk, Exchange, Pusher, Renewal, Replay};
use sickbay_core::settlement::Settled;
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    Counters, Decision, Delivery, Failure, Kind, MessageId, MessageType, NewMessage, QueueName, Settlement,
    Stages, StreamKey, WorkerName,
};
use sickbay_testkit::script::Command;

use crate::oracle::Entry;
use crate::stores;
use crate::wait::wait;
use crate::world::World;

fn word(command: &Command, index: usize) -> &str {
    command.words.get(index).map_or("", String::as_str)
}

fn number(command: &Command, name: &str, default: u64) -> u64 {
    command.option(name).and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn index(command: &Command, at: usize) -> usize {
    word(command, at).parse().unwrap_or(0)
}

fn queue(command: &Command) -> Option<QueueName> {
    QueueName::new(word(command, 0)).ok()
}

impl World {
    /// Carries a step out. The verbs are those of message-life scripts, with other ways to say which
    /// message is meant: by what is in a process's hands, or by where it is.
    pub(crate) fn act(&mut self, command: &Command) {
        match command.verb.as_str() {
            "push" => self.push(command),
            "adopt" => self.adopt(command),
            "claim" => self.claim(command, Vec::new()),
            "done" | "fail" | "unknown" | "poison" | "release" | "defer" => self.settle(command),
            "renew" => self.renew(command),
            "die" => self.die(number(command, "by", 1)),
            "crash" => self.crash(),
            "reopen" => self.reopen(),
            "advance" => self.pass(command.words.first().and_then(|w| span(w)).unwrap_or_default()),
            "back" => self.back(command),
            "damage" => self.damage(command),
            "work" | "kill" | "stop" | "break" => self.crew(command),
            _ => self.act_step(command),
        }
    }

    /// Steps that need nothing but the store.
    pub(crate) fn act_step(&self, command: &Command) {
        match command.verb.as_str() {
            "queue" => self.define(command),
            "pause" | "resume" => {
                let Some(queue) = queue(command) else { return };
                drop(wait(self.store.set_paused(&queue, command.verb == "pause")));
            }
            "gate" => self.gate(command),
            "purge" => {
                let Some(queue) = queue(command) else { return };
                let age = command.duration("age").unwrap_or_default();
                let rows_max = self.oracle().whole_cut(queue.as_str(), age, index(command, 1));
                drop(wait(self.store.purge(&queue, age, rows_max)));
            }
            "release-followers" => {
                let (Some(queue), Ok(stream)) = (queue(command), StreamKey::new(word(command, 1))) else {
                    return;
                };
                drop(wait(self.store.release_followers(&queue, &stream)));
            }
            "sweep" => drop(wait(self.store.sweep())),
            "replay" | "dead-letter" | "discard" | "restore" | "cancel" | "hasten" | "reset" => {
                self.on_message(command);
            }
            verb => self.oracle().accuse("script", format!("there is no step {verb:?}")),
        }
    }

    fn define(&self, command: &Command) {
        let Some(queue) = queue(command) else { return };
        let mut policy = command.policy();
        policy.lease = command.duration("lease").unwrap_or(Duration::from_secs(30));
        policy.time_budget = command.duration("budget").unwrap_or(Duration::from_secs(60));
        policy.keep_completed = command.duration("keep").unwrap_or_default();
        drop(wait(self.store.define_queue(&queue, policy)));
    }

    fn new_message(&mut self, command: &Command) -> Option<NewMessage> {
        self.pushes += 1;
        let mut message = NewMessage::new(queue(command)?, payload(self.pushes, number(command, "size", 5)));
        message.stream = command.option("stream").and_then(|text| text.parse().ok());
        message.key = command.option("key").and_then(|text| text.parse().ok());
        message.message_type = command.option("type").and_then(|text| text.parse().ok());
        message.priority = Priority::new(number(command, "priority", 4) as u8).unwrap_or_default();
        message.delay = command.duration("delay").unwrap_or_default();
        message.deadline = command.duration("deadline");
        Some(message)
    }

    fn push(&mut self, command: &Command) {
        self.clean_up();
        if self.is_full() {
            return;
        }
        let mut messages = Vec::new();
        for _ in 0..number(command, "count", 1) {
            messages.extend(self.new_message(command));
        }
        drop(wait(self.store.push(messages)));
        let last = self.oracle().acknowledged();
        self.last = (last > 0).then_some(last);
    }

    fn adopt(&mut self, command: &Command) {
        if self.is_full() {
            return;
        }
        let Some(message) = self.new_message(command) else { return };
        let failure = Failure::transient("the broker's handler failed");
        let decision = match command.option("decision") {
            Some("release") => Decision::Release { after: Duration::ZERO },
            Some("quarantine") => Decision::Quarantine { set_aside: SetAside::NonRetryableError, failure },
            _ => Decision::Retry { after: Duration::from_secs(10), failure },
        };
        let adoption = Adoption {
            message,
            origin: command.option("origin").unwrap_or("o").to_owned(),
            counters: Counters { deliveries: number(command, "deliveries", 1) as u32, ..Counters::default() },
            started_at: self.now(),
            worker: "worker/broker".to_owned(),
            decision,
            signature: None,
            stages: Stages::NONE,
        };
        drop(wait(self.store.adopt(vec![adoption])));
    }

    /// An operator tidies up, so that a long run does not drown in dead letters.
    fn clean_up(&self) {
        if !self.has_too_many_dead() {
            return;
        }
        let oldest: Vec<u64> = self.oracle().numbers(Entry::is_dead);
        let ids = oldest.into_iter().take(24).filter_map(MessageId::from_number).collect();
        drop(wait(self.store.discard(ids, "old".to_owned())));
        for queue in crate::world::QUEUES.iter().filter_map(|name| QueueName::new(name).ok()) {
            drop(wait(self.store.purge(&queue, Duration::ZERO, 100)));
        }
    }

    fn claim(&mut self, command: &Command, settlements: Vec<Settlement>) {
        let Some(queue) = queue(command) else { return };
        let by = number(command, "by", 1);
        let Ok(worker) = WorkerName::new(format!("worker/{by}")) else { return };
        let claim = Claim {
            queue,
            worker,
            process: self.process(by),
            max: number(command, "max", 1) as u32,
            wait: Duration::ZERO,
            lease: command.duration("for").unwrap_or(Duration::from_secs(30)),
        };
        let exchange = Exchange { settlements, claim: Some(claim) };
        let Ok(exchanged) = wait(self.store.exchange(exchange)) else { return };
        self.last = exchanged.deliveries.last().map(|delivery| delivery.message.id.number());
        self.hands.entry(by).or_default().extend(exchanged.deliveries);
    }

    /// The delivery that a step means: one in a process's hands, or with `late` one that was settled or
    /// lost already.
    fn delivery(&mut self, command: &Command) -> Option<Delivery> {
        let at = index(command, 0);
        if command.has("late") {
            let at = at.checked_rem(self.old.len())?;
            return self.old.get(at).cloned();
        }
        let hands = self.hands.get_mut(&number(command, "by", 1))?;
        let at = at.checked_rem(hands.len())?;
        Some(if command.verb == "renew" { hands[at].clone() } else { hands.remove(at) })
    }

    fn settle(&mut self, command: &Command) {
        let Some(delivery) = self.delivery(command) else { return };
        let Some(decision) = self.decision(command, &delivery) else { return };
        let mut settlement = Settlement::new(delivery.token(), decision);
        settlement.cascade = command.has("cascade");
        settlement.stages = Stages::from_bits(number(command, "stages", 0) as u16 & 0b0111_1111_1111_1111);
        let effect = command.option("effect").map(|text| match text {
            "fail" => "fail".to_owned(),
            _ => format!("{}", delivery.token()),
        });
        settlement.effect = effect.as_deref().map(|key| self.fixture.effect(key));
        self.last = Some(delivery.message.id.number());
        if let Some(next) = command.option("then") {
            let claim = Command::new("claim", next).with("by", number(command, "by", 1)).with("max", 2);
            self.remember(delivery);
            return self.claim(&claim, vec![settlement]);
        }
        let Ok(exchanged) = wait(self.store.exchange(Exchange::settle(vec![settlement]))) else { return };
        match exchanged.settled.first() {
            Some(Settled::Applied) => self.effects.extend(effect),
            Some(Settled::EffectFailed { .. }) if effect.as_deref() != Some("fail") => {
                self.oracle().accuse("I1", "an effect failed that had no reason to");
            }
            Some(Settled::EffectFailed { .. }) => {
                let by = number(command, "by", 1);
                return self.hands.entry(by).or_default().push(delivery);
            }
            _ => {}
        }
        self.remember(delivery);
    }

    /// What a worker would decide, by the core's own function.
    fn decision(&self, command: &Command, delivery: &Delivery) -> Option<Decision> {
        let mut failure = Failure::transient(error_text(delivery.message.id.number()));
        failure.retry_after = command.duration("after");
        let outcome = match command.verb.as_str() {
            "done" => Outcome::Done,
            "release" => Outcome::NotRun,
            "defer" => Outcome::Deferred(command.duration("after").unwrap_or(Duration::from_secs(3))),
            "poison" => Outcome::Failed(Failure { kind: Kind::Poison, ..failure }),
            "unknown" => Outcome::Failed(Failure { kind: Kind::Unknown, ..failure }),
            _ => Outcome::Failed(failure),
        };
        let message = &delivery.message;
        let policy = wait(self.store.policy(&message.queue)).ok()?;
        let facts = Facts {
            id: message.id,
            message_type: message.message_type.as_ref(),
            counters: delivery.counters,
        };
        Some(decide(&policy, facts, outcome))
    }

    fn renew(&mut self, command: &Command) {
        let Some(delivery) = self.delivery(command) else { return };
        let lease = command.duration("for").unwrap_or(Duration::from_secs(30));
        drop(wait(self.store.renew(Renewal { tokens: vec![delivery.token()], lease })));
    }

    fn die(&mut self, by: u64) {
        self.let_go(by);
        drop(wait(self.store.process_died(self.process(by), "signal 9".to_owned())));
    }

    fn let_go(&mut self, by: u64) {
        for delivery in self.hands.remove(&by).unwrap_or_default() {
            self.remember(delivery);
        }
    }

    /// What a store knows that is opened at an earlier time than it was closed at is left to the store,
    /// so that does not happen here.
    pub(crate) fn catch_up(&self) {
        let time = sickbay_core::Timestamp::from_millis(self.oracle().time());
        if self.now() < time {
            self.clock.set(time);
        }
    }

    fn crash(&mut self) {
        self.catch_up();
        let owner = self.fixture.process();
        self.let_go(0);
        self.fixture.crash();
        self.oracle().owner_crashed(owner, self.now().millis());
        self.store.replace(self.fixture.store());
    }

    /// A store in memory cannot be closed and opened again.
    fn reopen(&mut self) {
        if self.kind == stores::Kind::Memory {
            return;
        }
        self.catch_up();
        self.let_go(0);
        let closing = (self.kind == stores::Kind::Postgres).then(|| self.fixture.process());
        // The watched store holds a clone, which must go first, or the file stays open.
        let spare: std::sync::Arc<dyn sickbay_core::port::Store> =
            std::sync::Arc::new(sickbay_store::MemoryStore::new(std::sync::Arc::new(self.clock.clone())));
        self.store.replace(spare);
        self.fixture.reopen();
        self.oracle().reopened(closing, self.now().millis());
        self.store.replace(self.fixture.store());
    }

    /// The clock goes back. The store's time does not, but for that of PostgreSQL, which is the server's own.
    fn back(&self, command: &Command) {
        if self.kind == stores::Kind::Postgres {
            return;
        }
        let by = command.words.first().and_then(|w| span(w)).unwrap_or_default();
        let now = self.now().millis() - by.as_millis() as i64;
        self.clock.set(sickbay_core::Timestamp::from_millis(now));
        drop(wait(self.store.sweep()));
    }

    fn damage(&mut self, command: &Command) {
        let Some(id) = self.message(command) else { return };
        // A store may deliver what came back from memory, where the bytes are whole.
        // Which messages of a probed type it comes to, and finds damaged, is left to it.
        let plain = |entry: &Entry| entry.stream.is_none() && entry.kind.is_none();
        let fresh = |entry: &Entry| entry.is_waiting() && entry.seen == 0 && plain(entry);
        let untouched = |entry: &Entry| !entry.damaged && (entry.is_dead() || fresh(entry));
        let whole = self.oracle().entry(id.number()).is_some_and(untouched);
        if whole {
            self.fixture.damage(id);
            self.oracle().damaged(id.number());
        }
    }

    /// The message that a step means: the n-th of those that are in a certain place.
    fn message(&self, command: &Command) -> Option<MessageId> {
        let oracle = self.oracle();
        let (at, now) = (index(command, 1), self.now().millis());
        let numbers = match word(command, 0) {
            "dead" => oracle.numbers(Entry::is_dead),
            "discarded" => oracle.numbers(Entry::is_discarded),
            "waiting" => oracle.numbers(Entry::is_waiting),
            "scheduled" => oracle.numbers(|entry| entry.is_waiting() && entry.due_at > now),
            "leased" => oracle.numbers(Entry::is_leased),
            _ => return MessageId::from_number(1 + at as u64 % oracle.acknowledged().max(1)),
        };
        let at = at.checked_rem(numbers.len())?;
        MessageId::from_number(numbers[at])
    }

    fn on_message(&self, command: &Command) {
        let Some(id) = self.message(command) else { return };
        match command.verb.as_str() {
            "replay" if self.meets_probes(id) => {}
            "replay" => {
                let queue = command.option("to").and_then(|name| QueueName::new(name).ok());
                let payload = command.option("payload").map(|text| Bytes::from(text.to_owned()));
                drop(wait(self.store.replay(vec![Replay { id, queue, payload }])));
            }
            "dead-letter" => drop(wait(self.store.dead_letter(vec![id], "by hand\0".to_owned()))),
            "discard" => drop(wait(self.store.discard(vec![id], "not needed".to_owned()))),
            "restore" => drop(wait(self.store.restore(vec![id]))),
            "cancel" => drop(wait(self.store.cancel(vec![id]))),
            "reset" => drop(wait(self.store.reset_attempts(vec![id]))),
            _ => drop(wait(self.store.hasten(vec![id]))),
        }
    }

    /// A message with a key would come back where probes are let through.
    fn meets_probes(&self, id: MessageId) -> bool {
        let mut oracle = self.oracle();
        let keyed = oracle.entry(id.number()).is_some_and(|entry| entry.key.is_some());
        keyed && crate::world::QUEUES.iter().any(|queue| oracle.is_probed(queue))
    }

    fn gate(&self, command: &Command) {
        let (Some(queue), Ok(kind)) = (queue(command), MessageType::new(word(command, 1))) else { return };
        if word(command, 2) == "probing" && self.oracle().has_strange_keys(queue.as_str()) {
            return;
        }
        let gate = match word(command, 2) {
            "paused" => TypeGate::Paused,
            "tripped" => TypeGate::Tripped,
            "probing" => TypeGate::Probing { left: index(command, 3) as u32 },
            _ => TypeGate::Open,
        };
        drop(wait(self.store.set_type_gate(&queue, &kind, gate)));
    }
}

/// `500ms`, `30s`, `2h`.
pub(crate) fn span(text: &str) -> Option<Duration> {
    Command::bare("span").with("of", text).duration("of")
}

/// Bytes that are no text: zeros, high ones, and none like another's.
fn payload(number: u64, size: u64) -> Vec<u8> {
    let seed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    (0..size.min(1 << 20)).map(|at| if at % 5 == 1 { 0 } else { seed[at as usize % 8] ^ at as u8 }).collect()
}

/// Errors as they come: with a NUL, an escape, half a character's worth of text.
fn error_text(id: u64) -> String {
    match id % 4 {
        0 => "connection refused by 10.0.0.7".to_owned(),
        1 => "row 17\0: \u{1b}[31mred\u{1b}[0m".to_owned(),
        2 => String::new(),
        _ => format!("no such order {id}\r\nat line 3"),
    }
}
