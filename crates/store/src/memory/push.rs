//! How messages come in: pushed or adopted (rules 1 to 7).

use std::time::Duration;

use sickbay_core::clock::Timestamp;
use sickbay_core::delivery::Counters;
use sickbay_core::message::Message;
use sickbay_core::port::{Adoption, ProcessId, Pushed};
use sickbay_core::{Key, LeaseToken, MessageId, NewMessage, QueueName, StoreError};

use super::settle::Report;
use super::state::{Held, Owner, Place, Record, State};
use crate::door;

impl State {
    /// Rule 2: everything is checked before anything is stored.
    pub(super) fn push(
        &mut self,
        messages: Vec<NewMessage>,
        now: Timestamp,
    ) -> Result<Vec<Pushed>, StoreError> {
        self.check(messages.iter())?;
        messages.into_iter().map(|message| self.push_one(message, now)).collect()
    }

    pub(super) fn adopt(
        &mut self,
        adoptions: Vec<Adoption>,
        now: Timestamp,
    ) -> Result<Vec<Pushed>, StoreError> {
        self.check(adoptions.iter().map(|adoption| &adoption.message))?;
        adoptions.into_iter().map(|adoption| self.adopt_one(adoption, now)).collect()
    }

    /// Rule 3.
    fn check<'a>(&self, messages: impl Iterator<Item = &'a NewMessage>) -> Result<(), StoreError> {
        for message in messages {
            self.queue(&message.queue)?;
            self.limits.check(message)?;
        }
        Ok(())
    }

    fn push_one(&mut self, message: NewMessage, now: Timestamp) -> Result<Pushed, StoreError> {
        if let Some(owner) = self.duplicate(&message, now)? {
            return Ok(Pushed::Duplicate(owner));
        }
        Ok(Pushed::New(self.insert(message, now)?))
    }

    fn adopt_one(&mut self, adoption: Adoption, now: Timestamp) -> Result<Pushed, StoreError> {
        let origin = (adoption.message.queue.clone(), adoption.origin.clone());
        if let Some((known, _)) = self.origins.get(&origin).copied() {
            self.queue_mut(&adoption.message.queue)?.duplicates += 1;
            return Ok(Pushed::Duplicate(known)); // rule 7
        }
        if let Some(owner) = self.duplicate(&adoption.message, now)? {
            return Ok(Pushed::Duplicate(owner));
        }
        let id = self.insert(NewMessage { delay: Duration::ZERO, ..adoption.message.clone() }, now)?;
        self.origins.insert(origin, (id, now));
        self.settle_adopted(id, adoption, now);
        Ok(Pushed::New(id))
    }

    /// The message that owns the key of this one, if that makes it a duplicate (rule 4).
    fn duplicate(&mut self, message: &NewMessage, now: Timestamp) -> Result<Option<MessageId>, StoreError> {
        let Some(key) = &message.key else { return Ok(None) };
        let owner = match self.owner(&message.queue, key, now) {
            Ownership::Done(owner) | Ownership::Live(owner) => owner,
            Ownership::Free => return Ok(None),
        };
        self.queue_mut(&message.queue)?.duplicates += 1;
        Ok(Some(owner))
    }

    /// Who keeps others from using a key now (rules 4 and 6).
    pub(super) fn owner(&self, queue: &QueueName, key: &Key, now: Timestamp) -> Ownership {
        let Some(owner) = self.keys.get(&(queue.clone(), key.clone())) else { return Ownership::Free };
        match owner.done_until {
            Some(until) if until > now => Ownership::Done(owner.id),
            Some(_) => Ownership::Free,
            None if self.messages.get(&owner.id).is_some_and(Record::is_live) => Ownership::Live(owner.id),
            None => Ownership::Free,
        }
    }

    fn insert(&mut self, message: NewMessage, now: Timestamp) -> Result<MessageId, StoreError> {
        let id = MessageId::from_number(self.last + 1).ok_or_else(door::numbers_spent)?; // rule 1
        self.last += 1;
        self.queue_mut(&message.queue)?.pushed += 1;
        if let Some(key) = &message.key {
            self.keys.insert((message.queue.clone(), key.clone()), Owner { id, done_until: None });
        }
        let record = Record {
            checksum: door::checksum(&message.payload),
            original_payload: None,
            counters: Counters::default(),
            stages: message.stages,
            cause: None,
            suspect: false,
            deferred: false,
            due_at: now.plus(message.delay), // rule 8
            place: Place::Waiting,
            history: Vec::new(),
            last_token: None,
            message: Message {
                id,
                queue: message.queue,
                message_type: message.message_type,
                stream: message.stream,
                key: message.key,
                priority: message.priority,
                pushed_at: now,
                deadline_at: message.deadline.map(|deadline| now.plus(deadline)),
                headers: message.headers,
                payload: message.payload,
            },
        };
        self.messages.insert(id, record);
        Ok(id)
    }

    /// Does with an adopted message what a settlement would have done with its delivery (rule 13).
    fn settle_adopted(&mut self, id: MessageId, adoption: Adoption, now: Timestamp) {
        let Some(record) = self.messages.get_mut(&id) else { return };
        record.counters = adoption.counters;
        record.counters.deliveries = record.counters.deliveries.max(1);
        record.place = Place::Leased(Held {
            token: LeaseToken { epoch: 0, claim: 0, message: id },
            worker: adoption.worker,
            process: ProcessId(0),
            started_at: adoption.started_at,
            expires_at: Timestamp::NEVER,
        });
        let report = Report { stages: adoption.stages, signature: adoption.signature, ..Report::default() };
        self.apply(id, adoption.decision, report, now);
    }
}

/// Who keeps others from using a key.
pub(super) enum Ownership {
    /// It was done, and its window has not passed.
    Done(MessageId),
    /// Its owner waits or is leased.
    Live(MessageId),
    /// Nobody.
    Free,
}
