//! The commands that change something.

use std::time::Duration;

use bytes::Bytes;
use sickbay_core::decide::{Decision, Facts, Outcome, SetAside, decide};
use sickbay_core::delivery::Counters;
use sickbay_core::message::{Priority, Status};
use sickbay_core::port::{Adoption, Exchange, Pushed, Renewal, Replay};
use sickbay_core::stats::TypeGate;
use sickbay_core::{Failure, Kind, MessageId, NewMessage, Settlement, Stages, Timestamp};

use super::answer;
use super::command::{self, Command};
use super::runner::{Answer, Runner, code, name};

impl Runner<'_> {
    pub(super) async fn define(&self, command: &Command) -> Answer {
        self.store().define_queue(&self.queue(command)?, command.policy()).await.map_err(code)?;
        Ok("ok".to_owned())
    }

    fn new_message(&mut self, command: &Command) -> Result<NewMessage, String> {
        self.pushes += 1;
        let payload = command.words.first().cloned().unwrap_or_else(|| format!("payload {}", self.pushes));
        let mut message = NewMessage::new(self.queue(command)?, payload);
        message.stream = command.option("stream").map(name).transpose()?;
        message.key = command.option("key").map(name).transpose()?;
        message.message_type = command.option("type").map(name).transpose()?;
        message.delay = command.duration("delay").unwrap_or_default();
        message.deadline = command.duration("deadline");
        let priority = command.option("priority").and_then(|text| text.parse().ok()).and_then(Priority::new);
        message.priority = priority.unwrap_or_default();
        Ok(message)
    }

    fn pushed(&mut self, answers: Vec<Pushed>) -> String {
        let tell = |answer| match answer {
            Pushed::New(id) => {
                self.ids.push(id);
                self.name_of(id)
            }
            Pushed::Duplicate(id) => format!("duplicate of {}", self.name_of(id)),
        };
        answer::list(answers.into_iter().map(tell).collect::<Vec<_>>())
    }

    pub(super) async fn push(&mut self, command: &Command) -> Answer {
        let message = self.new_message(command)?;
        let pushed = self.store().push(vec![message]).await.map_err(code)?;
        Ok(self.pushed(pushed))
    }

    pub(super) async fn adopt(&mut self, command: &Command) -> Answer {
        let message = self.new_message(command)?;
        let failure = Failure::transient("the broker's handler failed");
        let decision = match command.option("decision") {
            Some("release") => Decision::Release { after: Duration::ZERO },
            Some("quarantine") => Decision::Quarantine { set_aside: SetAside::NonRetryableError, failure },
            _ => Decision::Retry { after: Duration::from_secs(10), failure },
        };
        let adoption = Adoption {
            message,
            origin: command.option("origin").unwrap_or("o").to_owned(),
            counters: Counters { deliveries: 1, ..Counters::default() },
            started_at: self.now(),
            worker: "worker/broker".to_owned(),
            decision,
            signature: None,
            stages: Stages::NONE,
        };
        let adopted = self.store().adopt(vec![adoption]).await.map_err(code)?;
        Ok(self.pushed(adopted))
    }

    pub(super) async fn settle(&mut self, command: &Command) -> Answer {
        let mut settlement = Settlement::new(self.token(command)?, self.decision(command).await?);
        settlement.cascade = command.has("cascade");
        settlement.effect = command.option("effect").map(|key| self.fixture.effect(key));
        settlement.stages = match command.option("stage") {
            Some("stored") => Stages::STORED,
            Some("published") => Stages::PUBLISHED,
            _ => Stages::NONE,
        };
        let told = match &settlement.decision {
            Decision::Retry { after, .. } => format!("retry in {}", answer::duration(*after)),
            Decision::Quarantine { set_aside, .. } => format!("dead {}", set_aside.as_str()),
            _ => "ok".to_owned(),
        };
        let exchanged = self.store().exchange(Exchange::settle(vec![settlement])).await.map_err(code)?;
        let answer = exchanged.settled.first().map(answer::settled).unwrap_or_default();
        Ok(if answer == "ok" { told } else { answer })
    }

    /// What a worker would have decided.
    async fn decision(&self, command: &Command) -> Result<Decision, String> {
        let delivery = self.delivery(command)?;
        let outcome = match command.verb.as_str() {
            "done" => Outcome::Done,
            "release" => Outcome::NotRun,
            "defer" => {
                let after = command.words.iter().find_map(|word| command::duration(word));
                Outcome::Deferred(after.ok_or("how long?")?)
            }
            _ => Outcome::Failed(failure(command)),
        };
        let message = &delivery.message;
        let policy = self.store().policy(&message.queue).await.map_err(code)?;
        let facts = Facts {
            id: message.id,
            message_type: message.message_type.as_ref(),
            counters: delivery.counters,
        };
        Ok(decide(&policy, facts, outcome))
    }

    pub(super) async fn renew(&mut self, command: &Command) -> Answer {
        let lease = command.words.iter().find_map(|word| command::duration(word)).ok_or("how long?")?;
        let token = self.token(command)?;
        let lost = self.store().renew(Renewal { tokens: vec![token], lease }).await.map_err(code)?;
        if !lost.is_empty() {
            return Ok("lease lost".to_owned());
        }
        let expires_at = self.now().plus(lease);
        for delivery in self.deliveries.iter_mut().filter(|delivery| delivery.token() == token) {
            delivery.lease.expires_at = delivery.lease.expires_at.max(expires_at); // rule 16
        }
        Ok("ok".to_owned())
    }

    /// The active messages, in order of their names.
    async fn active(&self) -> Result<Vec<MessageId>, String> {
        let mut active = Vec::new();
        for id in &self.ids {
            if self.find(*id).await?.is_some_and(|view| view.status == Status::Active) {
                active.push(*id);
            }
        }
        Ok(active)
    }

    /// A process dies: `crash` is the owner, `die as=2` another one.
    pub(super) async fn die(&mut self, command: &Command) -> Answer {
        let before = self.active().await?;
        if command.verb == "crash" {
            self.fixture.crash();
        } else {
            let process = self.process(command);
            self.store().process_died(process, "signal 9".to_owned()).await.map_err(code)?;
        }
        let mut fates = Vec::new();
        for id in before {
            let fate = match self.find(id).await? {
                Some(view) if view.status == Status::Active => continue,
                Some(view) if view.suspect => "suspect".to_owned(),
                Some(view) => {
                    view.dead.map_or("free".to_owned(), |dead| format!("dead {}", dead.set_aside.as_str()))
                }
                None => "gone".to_owned(),
            };
            fates.push((self.name_of(id), fate));
        }
        Ok(match fates.as_slice() {
            [(_, fate)] => fate.clone(),
            many => answer::list(many.iter().map(|(name, fate)| format!("{name} {fate}"))),
        })
    }

    /// Lets time pass until every lease has run out, and tells what came back.
    pub(super) async fn expire(&self) -> Answer {
        let active = self.active().await?;
        let last = |id: &MessageId| {
            let of_message = self.deliveries.iter().rfind(|delivery| delivery.message.id == *id);
            of_message.map(|delivery| delivery.lease.expires_at)
        };
        let until: Option<Timestamp> = active.iter().filter_map(last).max();
        if let Some(until) = until.filter(|until| *until > self.now()) {
            self.fixture.clock().set(until);
        }
        self.store().sweep().await.map_err(code)?;
        let still = self.active().await?;
        let back = active.into_iter().filter(|id| !still.contains(id));
        Ok(answer::list(back.map(|id| self.name_of(id))))
    }

    pub(super) async fn act(&self, command: &Command) -> Answer {
        let id = self.message(command)?;
        let store = self.store();
        let answers = match command.verb.as_str() {
            "replay" => {
                let queue = command.option("in").map(name).transpose()?;
                let payload = command.option("payload").map(|text| Bytes::from(text.to_owned()));
                store.replay(vec![Replay { id, queue, payload }]).await
            }
            "dead-letter" => store.dead_letter(vec![id], "by hand".to_owned()).await,
            "discard" => store.discard(vec![id], "not needed".to_owned()).await,
            "restore" => store.restore(vec![id]).await,
            "cancel" => store.cancel(vec![id]).await,
            "reset" => store.reset_attempts(vec![id]).await,
            _ => store.hasten(vec![id]).await,
        };
        Ok(answer::list(answers.map_err(code)?.iter().map(answer::replayed)))
    }

    pub(super) async fn purge(&self, command: &Command) -> Answer {
        let rows_max = command.words.first().and_then(|word| word.parse().ok()).unwrap_or(100);
        let age = command.duration("age").unwrap_or_default();
        let purged = self.store().purge(&self.queue(command)?, age, rows_max).await.map_err(code)?;
        Ok(purged.to_string())
    }

    pub(super) async fn gate(&self, command: &Command) -> Answer {
        let (store, queue) = (self.store(), self.queue(command)?);
        let Some(message_type) = command.option("type") else {
            store.set_paused(&queue, command.verb == "pause").await.map_err(code)?;
            return Ok("ok".to_owned());
        };
        let gate = match command.verb.as_str() {
            "pause" => TypeGate::Paused,
            "trip" => TypeGate::Tripped,
            "probe" => {
                let left = command.words.first().and_then(|word| word.parse().ok()).unwrap_or(1);
                TypeGate::Probing { left }
            }
            _ => TypeGate::Open,
        };
        store.set_type_gate(&queue, &name(message_type)?, gate).await.map_err(code)?;
        Ok("ok".to_owned())
    }

    pub(super) async fn release_followers(&self, command: &Command) -> Answer {
        let stream = name(command.words.first().map_or("s", String::as_str))?;
        let done = self.store().release_followers(&self.queue(command)?, &stream).await.map_err(code)?;
        Ok(if done { "yes" } else { "no" }.to_owned())
    }
}

/// The failure that a `fail` command reports.
fn failure(command: &Command) -> Failure {
    let kind = [("poison", Kind::Poison), ("unknown", Kind::Unknown)];
    let kind = kind.iter().find(|(word, _)| command.has(word)).map_or(Kind::Transient, |(_, kind)| *kind);
    let mut failure = Failure::transient("connection refused by 10.0.0.7");
    failure.kind = kind;
    failure.retry_after = command.duration("after");
    failure
}
