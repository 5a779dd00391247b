//! What the oracle knows of one message.

use bytes::Bytes;
use sickbay_core::decide::SetAside;
use sickbay_core::port::ProcessId;
use sickbay_core::quarantine::AttemptEnd;
use sickbay_core::{Cause, Counters, LeaseToken, Reason};

/// Where a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Waits for its turn or its time.
    Waiting,
    /// Is in somebody's hands.
    Leased {
        /// The token it was handed out under.
        token: LeaseToken,
        /// The process that would die with it.
        process: ProcessId,
        /// When the lease ends.
        expires_at: i64,
        /// The call in which it was handed out.
        since: u64,
    },
    /// Is in quarantine.
    Dead {
        /// Why.
        set_aside: SetAside,
        /// What went wrong.
        reason: Reason,
    },
    /// Was discarded from quarantine.
    Discarded {
        /// Why it was there.
        set_aside: SetAside,
        /// What went wrong.
        reason: Reason,
        /// When it was discarded.
        at: i64,
    },
}

/// What became of a message that is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It is still there.
    No,
    /// It was completed, and can be seen until then.
    Completed {
        /// Until when `find` shows it.
        kept_until: i64,
    },
    /// It was purged or cancelled.
    Removed,
}

/// One message that is there.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its queue, by its place in the oracle's list; likewise the next three.
    pub queue: usize,
    /// Its stream.
    pub stream: Option<usize>,
    /// Its key.
    pub key: Option<usize>,
    /// Its type.
    pub kind: Option<usize>,
    /// 0 to 9.
    pub priority: u8,
    /// What must be delivered.
    pub bytes: Bytes,
    /// What it was pushed with, if a replay changed that.
    pub original: Option<Bytes>,
    /// A byte was changed behind the store's back.
    pub damaged: bool,
    /// When it is no longer worth handling.
    pub deadline_at: Option<i64>,
    /// When it may be delivered.
    pub due_at: i64,
    /// What must have been counted.
    pub counters: Counters,
    /// Finished stages.
    pub stages: u16,
    /// Why it is delivered again.
    pub cause: Option<Cause>,
    /// Its worker died holding it.
    pub suspect: bool,
    /// Let out of its stream's order.
    pub deferred: bool,
    /// Where it is.
    pub place: Place,
    /// How each attempt ended, and its number.
    pub history: Vec<(u32, AttemptEnd)>,
    /// Deliveries that somebody really got, over its whole life, and those it came with.
    pub seen: u32,
    /// It may or may not have been put off; if it was not, it is due at this time.
    pub unsure: Option<i64>,
    /// Deliveries at a broker before the one it was adopted for; their causes are the broker's.
    pub brought: u32,
}

impl Entry {
    /// Nobody holds it and it is not set aside.
    pub fn is_waiting(&self) -> bool {
        self.place == Place::Waiting
    }

    /// It is in somebody's hands.
    pub fn is_leased(&self) -> bool {
        matches!(self.place, Place::Leased { .. })
    }

    /// It is in the hands of this process.
    pub fn is_leased_by(&self, process: ProcessId) -> bool {
        matches!(self.place, Place::Leased { process: by, .. } if by == process)
    }

    /// It is in quarantine and not discarded.
    pub fn is_dead(&self) -> bool {
        matches!(self.place, Place::Dead { .. })
    }

    /// It was discarded.
    pub fn is_discarded(&self) -> bool {
        matches!(self.place, Place::Discarded { .. })
    }

    pub(crate) fn note(&mut self, end: AttemptEnd) {
        self.history.push((self.counters.attempt_number(), end));
    }
}
