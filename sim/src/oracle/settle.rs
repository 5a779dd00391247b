//! Deliveries are settled: only under the current token, and as the policy says.

use std::time::Duration;

use sickbay_core::decide::SetAside;
use sickbay_core::policy::{Backoff, Ordering};
use sickbay_core::port::Renewal;
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::settlement::Settled;
use sickbay_core::{Cause, Counters, Decision, Kind, LeaseToken, QueuePolicy, Reason, Settlement, Stages};

use super::entry::{Gone, Place};
use super::{KeyOwner, Oracle};

/// A decision in the oracle's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    what: What,
    stages: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Complete,
    Retry { after: Duration, kind: Kind, wished: bool },
    Release { after: Duration },
    Redeliver,
    Quarantine { set_aside: SetAside, reason: Reason },
}

impl Fate {
    pub(crate) fn of(decision: &Decision, stages: u16) -> Self {
        let what = match decision {
            Decision::Complete => What::Complete,
            Decision::Retry { after, failure } => {
                What::Retry { after: *after, kind: failure.kind, wished: failure.retry_after.is_some() }
            }
            Decision::Release { after } => What::Release { after: *after },
            Decision::Redeliver => What::Redeliver,
            Decision::Quarantine { set_aside, failure } => {
                What::Quarantine { set_aside: *set_aside, reason: failure.reason }
            }
        };
        Self { what, stages }
    }
}

/// What the oracle needs of a settlement, noted before the store has it.
pub struct Told {
    token: LeaseToken,
    fate: Fate,
    cascade: bool,
    effect: bool,
}

impl From<&Settlement> for Told {
    fn from(settlement: &Settlement) -> Self {
        Self {
            token: settlement.token,
            fate: Fate::of(&settlement.decision, settlement.stages.bits()),
            cascade: settlement.cascade,
            effect: settlement.effect.is_some(),
        }
    }
}

impl Oracle {
    /// True if this is the token that the message is held under.
    pub(crate) fn is_current(&self, token: LeaseToken) -> bool {
        let place = self.entries.get(&token.message.number()).map(|entry| &entry.place);
        matches!(place, Some(Place::Leased { token: current, .. }) if *current == token)
    }

    /// Settlements were answered.
    pub fn settled(&mut self, told: &[Told], answers: &[Settled]) {
        self.expect("I3", || "answers to settlements".to_owned(), &answers.len(), &told.len());
        for (told, answer) in told.iter().zip(answers) {
            let current = self.is_current(told.token);
            let seen = match answer {
                Settled::Applied => "took effect",
                Settled::LeaseLost => "lease lost",
                Settled::EffectFailed { .. } if told.effect => continue,
                Settled::EffectFailed { .. } => "an effect that was not there failed",
            };
            let expected = if current { "took effect" } else { "lease lost" };
            let what =
                || format!("the settlement of message {} under {}", told.token.message.number(), told.token);
            self.expect("I3", what, &seen, &expected);
            if current {
                self.judge(told);
                self.carry_out(told.token.message.number(), &told.fate, told.cascade);
            }
        }
    }

    /// The decision must be the one that the policy asks for, unless that changed meanwhile.
    fn judge(&mut self, told: &Told) {
        let id = told.token.message.number();
        let Some(entry) = self.entries.get(&id) else { return };
        let Place::Leased { since, .. } = entry.place else { return };
        let line = &self.lines[entry.queue];
        if line.policy_since >= since {
            return;
        }
        let wrong = match &told.fate.what {
            What::Retry { after, kind, wished } => {
                wrong_retry(&line.policy, &entry.counters, *after, *kind, *wished)
            }
            What::Quarantine { set_aside, .. } => wrong_quarantine(&line.policy, &entry.counters, *set_aside),
            What::Redeliver => Some("a worker cannot say that a lease ran out".to_owned()),
            What::Complete | What::Release { .. } => None,
        };
        if let Some(wrong) = wrong {
            self.accuse("I5", format!("message {id}: {wrong}"));
        }
    }

    /// Does what was decided about a message in somebody's hands.
    pub(crate) fn carry_out(&mut self, id: u64, fate: &Fate, cascade: bool) {
        let now = self.now;
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.stages |= fate.stages;
        let failed = matches!(fate.what, What::Retry { .. } | What::Quarantine { .. });
        if failed {
            entry.stages |= Stages::FAILED.bits();
            entry.counters.failures += 1;
        }
        let after = |after: Duration| now.saturating_add(after.as_millis() as i64);
        match &fate.what {
            What::Complete => return self.complete(id),
            What::Quarantine { set_aside, reason } => return self.aside(id, *set_aside, *reason),
            What::Retry { after: wait, .. } => {
                entry.note(AttemptEnd::Failed);
                let line = &mut self.lines[entry.queue];
                line.failures += 1;
                entry.suspect = false;
                entry.due_at = after(*wait);
                entry.deferred |= cascade || line.policy.ordering == Ordering::Available;
                entry.cause = Some(Cause::Failed);
            }
            What::Release { after: wait } => {
                entry.note(AttemptEnd::Released);
                entry.counters.releases += 1;
                if !wait.is_zero() {
                    entry.due_at = after(*wait);
                }
                entry.cause = Some(Cause::Released);
            }
            What::Redeliver => {
                entry.note(AttemptEnd::LeaseExpired);
                entry.counters.expiries += 1;
                entry.cause = Some(Cause::LeaseExpired);
            }
        }
        entry.place = Place::Waiting;
    }

    /// The message is done, and so is its key.
    pub(crate) fn complete(&mut self, id: u64) {
        self.leave(id);
        let Some(entry) = self.entries.remove(&id) else { return };
        let line = &mut self.lines[entry.queue];
        line.completed += 1;
        let keep = line.policy.keep_completed.as_millis() as i64;
        let kept_until = if keep == 0 { i64::MIN } else { self.now.saturating_add(keep) };
        self.gone[id as usize - 1] = Gone::Completed { kept_until };
        if let Some(key) = entry.key
            && self.keys.get(&(entry.queue, key)).is_some_and(|owner| owner.id == id)
        {
            let done_until = self.now.saturating_add(line.policy.key_window.as_millis() as i64);
            self.keys.insert((entry.queue, key), KeyOwner { id, done_until: Some(done_until) });
        }
    }

    /// Leases were prolonged; the store named the lost ones.
    pub fn renewed(&mut self, renewal: &Renewal, lost: &[LeaseToken]) {
        let expected: Vec<LeaseToken> =
            renewal.tokens.iter().copied().filter(|token| !self.is_current(*token)).collect();
        self.expect("I3", || "lost leases".to_owned(), &lost.to_vec(), &expected);
        let until = self.now.saturating_add(renewal.lease.as_millis() as i64);
        for token in &renewal.tokens {
            if self.is_current(*token)
                && let Some(entry) = self.entries.get_mut(&token.message.number())
                && let Place::Leased { expires_at, .. } = &mut entry.place
            {
                *expires_at = until.max(*expires_at);
            }
        }
    }
}

fn attempts_max(policy: &QueuePolicy) -> u32 {
    policy.retry.attempts.max(1)
}

/// Deliveries that count against the limit.
fn counted(counters: &Counters) -> u32 {
    counters.deliveries.saturating_sub(counters.releases).saturating_sub(counters.crashes)
}

fn wrong_retry(
    policy: &QueuePolicy,
    counters: &Counters,
    after: Duration,
    kind: Kind,
    wished: bool,
) -> Option<String> {
    let limit = attempts_max(policy);
    if kind == Kind::Poison {
        return Some("a poison failure was to be tried again".to_owned());
    }
    if counters.failures + 1 >= limit || counted(counters) >= limit {
        return Some(format!("failure {} of {limit} was to be tried again", counters.failures + 1));
    }
    let wait = match policy.retry.backoff {
        Backoff::Cooldown(pause) => pause,
        Backoff::Exponential(base) => base * 2u32.pow((counters.failures + 1).min(20)),
    };
    let wait = wait.min(policy.retry.cap);
    (!wished && after != wait).then(|| format!("it was to be tried again after {after:?}, and not {wait:?}"))
}

fn wrong_quarantine(policy: &QueuePolicy, counters: &Counters, set_aside: SetAside) -> Option<String> {
    let limit = attempts_max(policy);
    match set_aside {
        SetAside::MaxDeliveryCountExceeded if counters.failures + 1 < limit && counted(counters) < limit => {
            Some(format!("set aside after failure {} of {limit}", counters.failures + 1))
        }
        SetAside::PoisonMessage if counted(counters) <= limit => {
            Some(format!("set aside as delivered too often, {} of {limit} times", counted(counters)))
        }
        SetAside::CrashBudgetSpent | SetAside::Operator | SetAside::Corrupt => {
            Some(format!("a worker cannot set a message aside as {}", set_aside.as_str()))
        }
        _ => None,
    }
}
