//! Known defects of this field, each behind a switch, to see that our tests find them. Only with the
//! feature `seeded-bugs`, which no other feature and no product build turns on; without it `bug!` is
//! `false` and nothing of this exists.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The defect that is switched on, counted from 1; 0 is none.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

macro_rules! bugs {
    ($($name:ident: $about:literal),+ $(,)?) => {
        /// A known defect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $about] $name),+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }

            /// What goes wrong, in words.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$name => $about),+ }
            }
        }
    };
}

bugs! {
    AcknowledgedBeforeCommit: "a push is acknowledged before its transaction is committed",
    FsyncSkipped: "a commit is acknowledged before the disk has it",
    SettledWithoutToken: "whoever knows a message can settle it",
    DoubleCompletion: "a settlement that comes too late is answered as if it took effect",
    RenewedWithoutToken: "whoever knows a message can prolong its lease",
    LeaseNotReturned: "an expired lease never comes back",
    ReaperIgnoresRenewal: "a lease that was renewed is taken back at its first end",
    ReaperIgnoresToken: "the end of an old lease takes a new one back",
    LocalClockForLeases: "leases follow a clock that can be set back",
    CountedOnFailureOnly: "a delivery after a crash is not counted when it is handed out",
    CrashBudgetOffByOne: "a killer gets one delivery too many",
    BystandersBlamed: "everything in a dead process's hands is charged",
    SuspectsNotAlone: "a suspect is delivered together with others",
    SuspicionForgotten: "a crash leaves no suspicion",
    RetriedOnceTooOften: "a message may fail once more than its policy says",
    PoisonRetried: "a failure that will never go away is tried again",
    RetryWithoutCause: "a redelivery does not say why",
    DeliveredEarly: "a scheduled message is delivered before its time",
    DeadlineIgnored: "a handler is called after the deadline",
    PriorityInverted: "what can wait is delivered first",
    PausedTypeDelivered: "a paused type is delivered",
    IdsReused: "the number of a cancelled message is given again",
    PayloadCutAtNul: "a payload ends at its first zero byte",
    ErrorTextUncleaned: "error texts are stored as they come",
    HistoryDropped: "a replay forgets what happened before",
    OriginalLost: "a replay with other bytes forgets the first ones",
    HoldsLostOnReplay: "the replay of one dead letter lets the whole stream go",
    FollowersReleasedEarly: "a quarantined head holds nobody up",
    TwoOfAStreamOut: "a retry is delivered while another of its stream is out",
    KeyNotMarkedDone: "a completed message's key can be pushed again",
    DuplicateOriginAdopted: "a broker's message is adopted twice",
    EffectKeptOnFailure: "half of a failed effect is committed",
    PurgedTooYoung: "a purge does not look at ages",
    AbandonedNotReturned: "a stop at its limit leaves what still runs leased",
    PanicLosesDelivery: "a handler that panics takes its delivery with it",
    RunGoesOnAfterFailure: "the rest of a stream's run is handled behind a failure",
}

/// Switches one defect on, or all off. It holds for the whole process.
pub fn activate(bug: Option<Bug>) {
    ACTIVE.store(bug.map_or(0, |bug| bug as usize + 1), Ordering::SeqCst);
}

/// True if this defect is switched on.
pub fn is_active(bug: Bug) -> bool {
    ACTIVE.load(Ordering::Relaxed) == bug as usize + 1
}
