//! Deliveries end (contract 13–17).

use std::sync::Arc;
use std::time::Duration;

use rusqlite::params;
use sickbay_core::policy::{Ordering, WhenHeadQuarantined};
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::settlement::Settled;
use sickbay_core::signature::Signature;
use sickbay_core::{Cause, Decision, Failure, Settlement, Stages, StoreError, bug};

use super::effect::SqliteEffect;
use super::failure::Translate;
use super::state::Leased;
use super::tx::Tx;

/// What is recorded of how a delivery ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Ending {
    pub(super) worker: Arc<str>,
    pub(super) started_at: i64,
    pub(super) signature: Option<Signature>,
    pub(super) stages: Stages,
    pub(super) ran: Option<Duration>,
    pub(super) output: Option<String>,
    pub(super) cascade: bool,
}

impl Tx<'_> {
    /// Settles a batch. Plain completions, the common case, leave together at the end.
    pub(super) fn settle(&mut self, settlements: Vec<Settlement>) -> Result<Vec<Settled>, StoreError> {
        let mut answers = Vec::with_capacity(settlements.len());
        let mut done = Vec::new();
        for settlement in settlements {
            answers.push(self.settle_one(settlement, &mut done)?);
        }
        self.remove_done(done)?;
        Ok(answers)
    }

    fn settle_one(&mut self, mut settlement: Settlement, done: &mut Vec<i64>) -> Result<Settled, StoreError> {
        let token = settlement.token;
        let number = token.message.number();
        let held = token.epoch == self.state.epoch
            && self.state.leases.get(&number).is_some_and(|lease| lease.claim == token.claim);
        let held = held || bug!(SettledWithoutToken) && self.state.leases.contains_key(&number);
        if !held {
            return Ok(if bug!(DoubleCompletion) { Settled::Applied } else { Settled::LeaseLost });
        }
        self.begin()?;
        if let Some(effect) = settlement.effect.take()
            && let Err(error) = self.carry_out_effect(effect)?
        {
            return Ok(Settled::EffectFailed { error });
        }
        let Some((lease, ending)) = self.take_lease(number) else { return Ok(Settled::LeaseLost) };
        let kept = !self.queue(lease.place.queue())?.policy.keep_completed.is_zero();
        let plain = !lease.in_waiting && lease.stream.is_none() && !lease.keyed && !kept;
        if plain && settlement.decision == Decision::Complete {
            done.push(lease.place.0);
            return Ok(Settled::Applied);
        }
        let ending = Ending {
            signature: settlement.signature,
            stages: settlement.stages,
            ran: settlement.ran,
            output: settlement.output,
            cascade: settlement.cascade,
            ..ending
        };
        let stream = lease.stream;
        self.carry_out(lease, settlement.decision, ending)?;
        if let Some((stream, _)) = stream {
            self.unlease_stream(stream)?;
        }
        Ok(Settled::Applied)
    }

    /// The handler's own writes, all or none of them.
    fn carry_out_effect(
        &self,
        effect: sickbay_core::verdict::Effect,
    ) -> Result<Result<(), String>, StoreError> {
        let effect: SqliteEffect = effect.take().map_err(|_| crate::door::foreign_effect())?;
        self.connection.execute_batch("SAVEPOINT effect").translated()?;
        let result = effect.run(self.connection);
        let end = if result.is_ok() || bug!(EffectKeptOnFailure) {
            "RELEASE effect"
        } else {
            "ROLLBACK TO effect; RELEASE effect"
        };
        self.connection.execute_batch(end).translated()?;
        Ok(result)
    }

    /// Takes a message out of its holder's hands.
    pub(super) fn take_lease(&mut self, number: u64) -> Option<(Leased, Ending)> {
        let lease = self.state.leases.remove(&number)?;
        let claim = self.state.claims.get_mut(&lease.claim)?;
        claim.left -= 1;
        let ending =
            Ending { worker: claim.worker.clone(), started_at: claim.claimed_at, ..Ending::default() };
        let (process, finished) = (claim.process, claim.left == 0);
        if finished {
            self.state.claims.remove(&lease.claim);
            self.state.ended_claims.push(lease.claim);
        }
        if let Some(process) = self.state.processes.get_mut(&process) {
            process.in_hand = process.in_hand.saturating_sub(1);
            process.holds_suspect &= !lease.suspect;
        }
        Some((lease, ending))
    }

    /// Removes completed messages that left no other trace: neighbours by one statement.
    fn remove_done(&mut self, mut places: Vec<i64>) -> Result<(), StoreError> {
        places.sort_unstable();
        let mut range = self.prepare("DELETE FROM message WHERE place BETWEEN ?1 AND ?2")?;
        for run in places.chunk_by(|a, b| *b == a + 1) {
            range.execute(params![run[0], run[run.len() - 1]]).translated()?;
            let tally = self.queue(super::place::Place(run[0]).queue())?.tally();
            tally.live -= run.len() as i64;
            tally.active -= run.len() as i64;
            tally.completed += run.len() as i64;
        }
        Ok(())
    }

    /// Carries a decision out. The stream, if there is one, is freed by the caller.
    pub(super) fn carry_out(
        &mut self,
        mut message: Leased,
        decision: Decision,
        ending: Ending,
    ) -> Result<(), StoreError> {
        message.stages = message.stages.with(ending.stages);
        let counters = &mut message.counters;
        match decision {
            Decision::Complete => return self.complete(&message),
            Decision::Quarantine { set_aside, failure } => {
                counters.failures += 1;
                message.stages = message.stages.with(Stages::FAILED);
                return self.bury(message, set_aside, &failure, ending);
            }
            Decision::Retry { after, failure } => {
                counters.failures += 1;
                message.cause = Some(Cause::Failed).filter(|_| !bug!(RetryWithoutCause));
                message.due_at = self.after(after);
                message.suspect = false;
                message.stages = message.stages.with(Stages::FAILED);
                self.queue(message.place.queue())?.tally().failures += 1;
                self.note_failure(&mut message, AttemptEnd::Failed, &failure, &ending)?;
                let available = self.queue(message.place.queue())?.policy.ordering == Ordering::Available;
                return self.park(message, ending.cascade || available);
            }
            Decision::Release { after } => {
                counters.releases += 1;
                message.cause = Some(Cause::Released);
                if !after.is_zero() {
                    message.due_at = self.after(after);
                }
                self.write_attempt(&mut message, AttemptEnd::Released, None, &ending)?;
            }
            Decision::Redeliver => {
                counters.expiries += 1;
                message.cause = Some(Cause::LeaseExpired);
                self.write_attempt(&mut message, AttemptEnd::LeaseExpired, None, &ending)?;
            }
        }
        self.park(message, false)
    }

    fn note_failure(
        &mut self,
        message: &mut Leased,
        end: AttemptEnd,
        failure: &Failure,
        ending: &Ending,
    ) -> Result<(), StoreError> {
        message.first_failed_at.get_or_insert(self.now);
        self.write_attempt(message, end, Some(failure), ending)
    }

    /// A message waits again.
    fn park(&mut self, message: Leased, defer: bool) -> Result<(), StoreError> {
        self.queue(message.place.queue())?.tally().active -= 1;
        let mut state = 0;
        if let Some((stream, deferred)) = message.stream {
            let number = message.place.number();
            if defer && !deferred {
                self.defer_entry(stream, number)?;
            }
            self.set_entry_due(stream, number, message.due_at)?;
            state = if deferred || defer { 0 } else { 3 };
        }
        self.put_waiting(message, state)
    }

    /// A message is done.
    pub(super) fn complete(&mut self, message: &Leased) -> Result<(), StoreError> {
        let (queue, number) = (message.place.queue(), message.place.number());
        if message.keyed
            && let Some(key) = self.key_of(message.place.0)?
        {
            self.key_done(queue, &key, number)?;
        }
        let kept = self.keep_completed(message)?;
        self.remove_live(message)?;
        if !message.history.is_empty() && !kept {
            self.drop_history(number, &message.history)?;
        }
        let tally = self.queue(queue)?.tally();
        tally.active -= 1;
        tally.live -= 1;
        tally.completed += 1;
        Ok(())
    }

    pub(super) fn key_of(&self, place: i64) -> Result<Option<String>, StoreError> {
        self.prepare("SELECT key FROM message WHERE place = ?1")?
            .query_row([place], |row| row.get(0))
            .translated()
    }

    /// Removes the rows of a live message; its history stays.
    pub(super) fn remove_live(&mut self, message: &Leased) -> Result<(), StoreError> {
        self.execute("DELETE FROM message WHERE place = ?1", [message.place.0])?;
        self.drop_waiting(message)?;
        if let Some((stream, _)) = message.stream {
            self.leave_stream(stream, message.place.number())?;
        }
        Ok(())
    }

    /// A message's worker died with it in hand (contract 17).
    pub(super) fn crash(&mut self, number: u64, alone: bool, evidence: &str) -> Result<(), StoreError> {
        let Some((mut message, ending)) = self.take_lease(number) else { return Ok(()) };
        let queue = message.place.queue();
        let policy = self.queue(queue)?.policy.clone();
        let message_type = message.type_no.and_then(|no| self.state.type_names.get(&no));
        let Some(id) = message.place.id() else { return Ok(()) };
        let facts = sickbay_core::decide::Facts { id, message_type, counters: message.counters };
        let outcome = sickbay_core::Outcome::Crashed { alone, evidence: evidence.to_owned() };
        let decision = sickbay_core::decide(&policy, facts, outcome);
        message.counters.crashes += 1;
        message.counters.charges += u32::from(alone);
        let stream = message.stream;
        if let Decision::Quarantine { set_aside, failure } = decision {
            self.bury(message, set_aside, &failure, ending)?;
        } else {
            message.cause = Some(Cause::Crashed);
            message.suspect = !bug!(SuspicionForgotten);
            let failure = crate::door::crashed(evidence);
            self.note_failure(&mut message, AttemptEnd::Crashed, &failure, &ending)?;
            self.park(message, false)?;
        }
        match stream {
            Some((stream, _)) => self.unlease_stream(stream),
            None => Ok(()),
        }
    }

    /// Leases that nobody renewed come back (contract 16).
    pub(super) fn expire_leases(&mut self) -> Result<(), StoreError> {
        while let Some(std::cmp::Reverse((until, claim))) = self.state.expiries.peek().copied() {
            if until > self.now || bug!(LeaseNotReturned) {
                break;
            }
            self.state.expiries.pop();
            let Some(info) = self.state.claims.get(&claim) else { continue };
            let numbers = info.numbers.clone();
            let mut next = i64::MAX;
            for number in numbers {
                match self.state.leases.get(&number) {
                    Some(lease) if lease.claim != claim && bug!(ReaperIgnoresToken) => self.expire(number)?,
                    Some(lease)
                        if lease.claim == claim
                            && (lease.until <= self.now || bug!(ReaperIgnoresRenewal)) =>
                    {
                        self.expire(number)?;
                    }
                    Some(lease) if lease.claim == claim => next = next.min(lease.until),
                    _ => {}
                }
            }
            if next < i64::MAX {
                self.state.expiries.push(std::cmp::Reverse((next, claim)));
            }
        }
        Ok(())
    }

    fn expire(&mut self, number: u64) -> Result<(), StoreError> {
        self.begin()?;
        let Some((message, ending)) = self.take_lease(number) else { return Ok(()) };
        let stream = message.stream;
        self.carry_out(message, Decision::Redeliver, ending)?;
        match stream {
            Some((stream, _)) => self.unlease_stream(stream),
            None => Ok(()),
        }
    }

    /// Removes the journal rows of batches that are settled completely.
    pub(super) fn drop_ended_claims(&mut self) -> Result<(), StoreError> {
        for claim in std::mem::take(&mut self.state.ended_claims) {
            self.begin()?;
            self.execute("DELETE FROM claim WHERE no = ?1", [claim as i64])?;
        }
        Ok(())
    }

    /// True if a quarantined head keeps its stream waiting.
    pub(super) fn holds_stream(&mut self, queue: i64) -> Result<bool, StoreError> {
        let policy = &self.queue(queue)?.policy;
        Ok(!bug!(FollowersReleasedEarly)
            && policy.ordering == Ordering::Strict
            && policy.when_head_quarantined == WhenHeadQuarantined::Hold)
    }
}
