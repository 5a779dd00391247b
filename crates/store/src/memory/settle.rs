//! How deliveries end: settled, expired, or with the process that held them (rules 13 to 17).

use std::time::Duration;

use sickbay_core::clock::Timestamp;
use sickbay_core::decide::{Decision, Facts, Outcome, decide};
use sickbay_core::delivery::Cause;
use sickbay_core::policy::Ordering;
use sickbay_core::port::ORIGIN_WINDOW;
use sickbay_core::port::{ProcessId, Renewal};
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::settlement::{Settled, Settlement};
use sickbay_core::signature::Signature;
use sickbay_core::verdict::Effect;
use sickbay_core::{LeaseToken, MessageId, Stages, StoreError};

use super::MemoryEffect;
use super::state::{Ending, Owner, Place, State};
use crate::door;

/// What a settlement says beside its decision.
#[derive(Default)]
pub(super) struct Report {
    pub stages: Stages,
    pub signature: Option<Signature>,
    pub ran: Option<Duration>,
    pub output: Option<String>,
    pub cascade: bool,
}

/// A settlement whose effect is known to be one of this store's.
pub(super) struct Checked {
    token: LeaseToken,
    decision: Decision,
    report: Report,
    effect: Option<MemoryEffect>,
}

impl Checked {
    /// Rule 15: an effect of another store is an error, before anything happens.
    pub(super) fn new(settlement: Settlement) -> Result<Self, StoreError> {
        let effect = settlement.effect.map(Effect::take::<MemoryEffect>).transpose();
        Ok(Self {
            token: settlement.token,
            decision: settlement.decision,
            report: Report {
                stages: settlement.stages,
                signature: settlement.signature,
                ran: settlement.ran,
                output: settlement.output.as_deref().map(door::clean_output),
                cascade: settlement.cascade,
            },
            effect: effect.map_err(|_| door::foreign_effect())?,
        })
    }
}

impl State {
    /// Rule 13: only under the current token of a message that is leased.
    fn is_current(&self, token: LeaseToken) -> bool {
        let held = self.messages.get(&token.message).and_then(|record| record.held());
        held.is_some_and(|held| held.token == token && token.epoch == self.epoch)
    }

    pub(super) fn settle(&mut self, settlement: Checked, now: Timestamp) -> Settled {
        if !self.is_current(settlement.token) {
            return Settled::LeaseLost;
        }
        // Rule 15: the effect is the last thing that can fail, so it comes before everything else.
        if let Some(effect) = settlement.effect
            && let Err(error) = (effect.0)()
        {
            return Settled::EffectFailed { error };
        }
        self.apply(settlement.token.message, settlement.decision, settlement.report, now);
        Settled::Applied
    }

    /// Carries a decision about a leased message out (the table of rule 13).
    pub(super) fn apply(&mut self, id: MessageId, decision: Decision, report: Report, now: Timestamp) {
        let Some((record, queue)) = self.both(id) else { return };
        record.stages = record.stages.with(report.stages); // rule 14
        if matches!(decision, Decision::Retry { .. } | Decision::Quarantine { .. }) {
            record.stages = record.stages.with(Stages::FAILED);
            record.counters.failures += 1;
        }
        let ending = |end, failure: Option<_>| Ending {
            end,
            failure: failure.map(door::clean),
            signature: report.signature,
            ran: report.ran,
            output: report.output,
        };
        match decision {
            Decision::Complete => self.complete(id, now),
            Decision::Retry { after, failure } => {
                record.record(ending(AttemptEnd::Failed, Some(failure)), now);
                queue.failures += 1;
                record.suspect = false; // rule 18
                record.due_at = now.plus(after);
                if queue.policy.ordering == Ordering::Available || report.cascade {
                    record.deferred = true; // rule 22
                }
                self.put_back(id, Cause::Failed);
            }
            Decision::Release { after } => {
                record.record(ending(AttemptEnd::Released, None), now);
                record.counters.releases += 1;
                if !after.is_zero() {
                    record.due_at = now.plus(after);
                }
                self.put_back(id, Cause::Released);
            }
            Decision::Redeliver => {
                record.record(ending(AttemptEnd::LeaseExpired, None), now);
                record.counters.expiries += 1;
                self.put_back(id, Cause::LeaseExpired);
            }
            Decision::Quarantine { set_aside, failure } => {
                self.set_aside(id, set_aside, ending(AttemptEnd::Quarantined, Some(failure)), now);
            }
        }
    }

    fn put_back(&mut self, id: MessageId, cause: Cause) {
        if let Some(record) = self.messages.get_mut(&id) {
            record.cause = Some(cause);
            record.place = Place::Waiting;
        }
    }

    /// The message is done, and so is its key (rule 5).
    pub(super) fn complete(&mut self, id: MessageId, now: Timestamp) {
        let Some(mut record) = self.messages.remove(&id) else { return };
        let Some(queue) = self.queues.get_mut(&record.message.queue) else { return };
        queue.completed += 1;
        if !queue.policy.keep_completed.is_zero() {
            record.place = Place::Completed;
            self.kept.insert(id, (record.clone(), now.plus(queue.policy.keep_completed)));
        }
        let Some(key) = record.message.key else { return };
        let key = (record.message.queue, key);
        if self.keys.get(&key).is_some_and(|owner| owner.id == id) {
            let done_until = Some(now.plus(queue.policy.key_window));
            self.keys.insert(key, Owner { id, done_until });
        }
    }

    /// Prolongs leases; names those that are lost.
    pub(super) fn renew(&mut self, renewal: &Renewal, now: Timestamp) -> Vec<LeaseToken> {
        let mut lost = Vec::new();
        for token in &renewal.tokens {
            if !self.is_current(*token) {
                lost.push(*token);
            } else if let Some(Place::Leased(held)) =
                self.messages.get_mut(&token.message).map(|record| &mut record.place)
            {
                held.expires_at = held.expires_at.max(now.plus(renewal.lease));
            }
        }
        lost
    }

    /// Does what time has made due (rules 5 and 16).
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let expired = |held: &super::state::Held| held.expires_at <= now;
        let over: Vec<MessageId> = self
            .messages
            .iter()
            .filter(|(_, record)| record.held().is_some_and(expired))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.apply(id, Decision::Redeliver, Report::default(), now);
        }
        self.kept.retain(|_, (_, until)| *until > now);
        self.keys.retain(|_, owner| owner.done_until.is_none_or(|until| until > now));
        self.origins.retain(|_, (_, at)| at.plus(ORIGIN_WINDOW) > now);
    }

    /// Every lease ends, as if its time had come (rule 17).
    pub(super) fn lose_leases(&mut self, now: Timestamp) {
        let leased = self.messages.iter().filter(|(_, record)| record.held().is_some());
        let leased: Vec<MessageId> = leased.map(|(id, _)| *id).collect();
        for id in leased {
            self.apply(id, Decision::Redeliver, Report::default(), now);
        }
    }

    /// A process is gone, with all that it held (rule 17).
    pub(super) fn process_died(&mut self, process: ProcessId, evidence: &str, now: Timestamp) -> u64 {
        let held: Vec<MessageId> = self.in_hands(process);
        let alone = held.len() == 1;
        for id in &held {
            self.crash_one(*id, alone, evidence, now);
        }
        self.claimed_from.remove(&process);
        held.len() as u64
    }

    /// What a process holds now, in all queues.
    pub(super) fn in_hands(&self, process: ProcessId) -> Vec<MessageId> {
        let holds =
            |record: &&super::state::Record| record.held().is_some_and(|held| held.process == process);
        self.messages.values().filter(holds).map(|record| record.message.id).collect()
    }

    fn crash_one(&mut self, id: MessageId, alone: bool, evidence: &str, now: Timestamp) {
        let Some((record, queue)) = self.both(id) else { return };
        let facts =
            Facts { id, message_type: record.message.message_type.as_ref(), counters: record.counters };
        let outcome = Outcome::Crashed { alone, evidence: evidence.to_owned() };
        let decision = decide(&queue.policy, facts, outcome);
        record.counters.crashes += 1;
        record.counters.charges += u32::from(alone);
        if let Decision::Quarantine { set_aside, failure } = decision {
            let ending =
                Ending { failure: Some(door::clean(failure)), ..Ending::new(AttemptEnd::Quarantined) };
            return self.set_aside(id, set_aside, ending, now);
        }
        let ending = Ending { failure: Some(door::crashed(evidence)), ..Ending::new(AttemptEnd::Crashed) };
        record.record(ending, now);
        record.suspect = true;
        self.put_back(id, Cause::Crashed);
    }
}
