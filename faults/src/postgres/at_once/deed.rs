//! What somebody does to the store, and what came of it.

use std::time::Duration;

use sickbay_core::decide::{Decision, SetAside};
use sickbay_core::delivery::Counters;
use sickbay_core::port::{
    Adoption, Claim, Deliveries, Desk, Exchange, Exchanged, ProcessId, Pushed, Pusher, Renewal, Replay,
    Replayed,
};
use sickbay_core::stage::Stages;
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    Failure, Key, LeaseToken, MessageId, MessageType, NewMessage, QueueName, Settlement, StoreError,
    StreamKey, Timestamp, WorkerName,
};
use sickbay_store::PostgresStore;

use super::book::Book;
use crate::dice::Dice;

/// How long a lease lasts.
pub(super) const LEASE: Duration = Duration::from_secs(10);

/// So many streams at most.
pub(super) const STREAMS_MAX: usize = 3;

/// What a delivery comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Complete,
    Retry,
    Later,
    Poison,
    Release,
}

/// One call of the store.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    Push(Vec<NewMessage>),
    /// Messages of a broker, from one of a few origins each.
    Adopt(Vec<(NewMessage, usize)>),
    Exchange {
        settle: Vec<(LeaseToken, Act)>,
        claim: Option<Claim>,
    },
    Renew(Vec<LeaseToken>),
    Sweep,
    Died(ProcessId),
    BeginEpoch,
    Gate(QueueName, TypeGate),
    DeadLetter(Vec<MessageId>),
    Replay(Vec<MessageId>),
    Cancel(Vec<MessageId>),
    Hasten(Vec<MessageId>),
    Discard(Vec<MessageId>),
    Restore(Vec<MessageId>),
    ReleaseFollowers(QueueName, StreamKey),
    Purge(QueueName),
    Reset(Vec<MessageId>),
    Pause(QueueName, bool),
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Answer {
    Pushed(Vec<NewMessage>, Vec<Pushed>),
    Exchanged(Vec<(LeaseToken, Act)>, Exchanged),
    Cancelled(Vec<MessageId>, Vec<Replayed>),
    Replayed(Vec<MessageId>, Vec<Replayed>),
    Discarded(Vec<MessageId>, Vec<Replayed>),
    Nothing,
}

/// The queues: one keeps what is done, the other lets streams pass.
pub(super) fn queues() -> anyhow::Result<[QueueName; 2]> {
    Ok([QueueName::new("q")?, QueueName::new("r")?])
}

/// The type that gates stop.
pub(super) fn gated() -> anyhow::Result<MessageType> {
    Ok(MessageType::new("t")?)
}

/// What a schedule is about: with few things at a time they meet more often.
pub(super) struct Theme {
    processes: usize,
    streams: usize,
    keys: usize,
    /// Out of four messages, so many are of the type that gates stop.
    gated: usize,
    kinds: Vec<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Push,
    Exchange,
    Renew,
    Sweep,
    Died,
    BeginEpoch,
    Gate,
    DeadLetter,
    Replay,
    Cancel,
    Hasten,
    Discard,
    Restore,
    ReleaseFollowers,
    Purge,
    Reset,
    Pause,
    Adopt,
}

/// What is done in every schedule, and what only in some of them.
const ALWAYS: [Kind; 9] = [
    Kind::Push,
    Kind::Push,
    Kind::Push,
    Kind::Exchange,
    Kind::Exchange,
    Kind::Exchange,
    Kind::Exchange,
    Kind::Exchange,
    Kind::Sweep,
];
const SOMETIMES: [Kind; 14] = [
    Kind::Renew,
    Kind::Died,
    Kind::BeginEpoch,
    Kind::Gate,
    Kind::DeadLetter,
    Kind::Replay,
    Kind::Cancel,
    Kind::Hasten,
    Kind::Discard,
    Kind::Restore,
    Kind::ReleaseFollowers,
    Kind::Purge,
    Kind::Reset,
    Kind::Pause,
];

impl Theme {
    pub(super) fn new(dice: &mut Dice, seed: u64) -> Self {
        let mut kinds = ALWAYS.to_vec();
        // Rolled apart, so that most seeds mean what they meant before there was this.
        if Dice::new(seed.wrapping_add(7_000_000)).once_in(3) {
            kinds.push(Kind::Adopt);
        }
        for kind in SOMETIMES {
            if dice.once_in(3) {
                let times = if kind == Kind::BeginEpoch { 1 } else { 1 + dice.roll(2) };
                kinds.extend(std::iter::repeat_n(kind, times));
            }
        }
        let (processes, streams) = (1 + dice.roll(2), dice.roll(STREAMS_MAX + 1));
        Self { processes, streams, keys: dice.roll(3), gated: dice.roll(3), kinds }
    }

    fn stream(&self, dice: &mut Dice) -> anyhow::Result<StreamKey> {
        Ok(StreamKey::new(format!("s{}", dice.roll(self.streams)))?)
    }

    /// Some message.
    pub(super) fn message(&self, dice: &mut Dice) -> anyhow::Result<NewMessage> {
        let queue = queues()?[usize::from(dice.once_in(3))].clone();
        let mut message = NewMessage::new(queue, format!("{}", dice.roll(1000)));
        if self.streams > 0 && dice.roll(4) > 0 {
            message = message.stream(self.stream(dice)?);
        }
        if self.keys > 0 && dice.once_in(2) {
            message = message.key(Key::new(format!("k{}", dice.roll(self.keys)))?);
        }
        if dice.roll(4) < self.gated {
            message = message.message_type(gated()?);
        }
        if dice.once_in(8) {
            message = message.delay(Duration::from_secs(5));
        }
        Ok(message)
    }

    /// Some deed that makes sense with what is known.
    pub(super) fn choose(&self, dice: &mut Dice, book: &Book) -> anyhow::Result<Deed> {
        let queue = queues()?[usize::from(dice.once_in(3))].clone();
        let process = ProcessId(1 + dice.roll(self.processes) as u64);
        let some = |dice: &mut Dice| {
            let ids = book.ids();
            (0..=dice.roll(2)).filter_map(|_| ids.get(dice.roll(ids.len())).copied()).collect::<Vec<_>>()
        };
        Ok(match self.kinds[dice.roll(self.kinds.len())] {
            Kind::Push => {
                Deed::Push((0..=dice.roll(3)).map(|_| self.message(dice)).collect::<Result<_, _>>()?)
            }
            Kind::Adopt => {
                let one = |dice: &mut Dice| anyhow::Ok((self.message(dice)?, dice.roll(4)));
                Deed::Adopt((0..=dice.roll(3)).map(|_| one(dice)).collect::<Result<_, _>>()?)
            }
            Kind::Exchange => {
                let tokens = if dice.once_in(2) { book.tokens(dice, 3) } else { Vec::new() };
                let acts = [Act::Complete, Act::Complete, Act::Retry, Act::Later, Act::Poison, Act::Release];
                let settle: Vec<_> = tokens.into_iter().map(|token| (token, acts[dice.roll(6)])).collect();
                let claims = settle.is_empty() || dice.once_in(2);
                let (worker, max) = (WorkerName::new("w")?, 1 + dice.roll(3) as u32);
                let claim = Claim { queue, worker, process, max, wait: Duration::ZERO, lease: LEASE };
                Deed::Exchange { settle, claim: claims.then_some(claim) }
            }
            Kind::Renew => Deed::Renew(book.tokens(dice, 3)),
            Kind::Sweep => Deed::Sweep,
            Kind::Died => Deed::Died(process),
            Kind::BeginEpoch => Deed::BeginEpoch,
            Kind::Gate => Deed::Gate(
                queue,
                match dice.roll(4) {
                    0 | 1 => TypeGate::Open,
                    2 => TypeGate::Paused,
                    _ => TypeGate::Probing { left: 1 + dice.roll(2) as u32 },
                },
            ),
            Kind::DeadLetter => Deed::DeadLetter(some(dice)),
            Kind::Replay => Deed::Replay(some(dice)),
            Kind::Cancel => Deed::Cancel(some(dice)),
            Kind::Hasten => Deed::Hasten(some(dice)),
            Kind::Discard => Deed::Discard(some(dice)),
            Kind::Restore => Deed::Restore(some(dice)),
            Kind::ReleaseFollowers => Deed::ReleaseFollowers(queue, self.stream(dice)?),
            Kind::Purge => Deed::Purge(queue),
            Kind::Reset => Deed::Reset(some(dice)),
            Kind::Pause => Deed::Pause(queue, dice.once_in(3)),
        })
    }
}

fn decision(act: Act) -> Decision {
    let failure = || Failure::transient("it does not go");
    match act {
        Act::Complete => Decision::Complete,
        Act::Retry => Decision::Retry { after: Duration::ZERO, failure: failure() },
        Act::Later => Decision::Retry { after: Duration::from_secs(3), failure: failure() },
        Act::Poison => {
            Decision::Quarantine { set_aside: SetAside::MaxDeliveryCountExceeded, failure: failure() }
        }
        Act::Release => Decision::Release { after: Duration::ZERO },
    }
}

fn adoption((message, origin): (NewMessage, usize)) -> Adoption {
    Adoption {
        message,
        origin: format!("o{origin}"),
        counters: Counters { deliveries: 1, ..Counters::default() },
        started_at: Timestamp::from_millis(0),
        worker: "guard".to_owned(),
        decision: decision(Act::Later),
        signature: None,
        stages: Stages::NONE,
    }
}

impl Deed {
    /// True if it may wait for nobody's transaction, however long that stays open.
    pub(super) fn never_waits(&self) -> bool {
        matches!(self, Self::Sweep) || matches!(self, Self::Exchange { settle, .. } if settle.is_empty())
    }

    /// Does it.
    pub(super) async fn perform(self, store: PostgresStore) -> Result<Answer, StoreError> {
        match self {
            Self::Push(messages) => {
                let pushed = store.push(messages.clone()).await?;
                Ok(Answer::Pushed(messages, pushed))
            }
            Self::Adopt(adopted) => {
                let adoptions = adopted.iter().cloned().map(adoption).collect();
                let pushed = store.adopt(adoptions).await?;
                Ok(Answer::Pushed(adopted.into_iter().map(|(message, _)| message).collect(), pushed))
            }
            Self::Exchange { settle, claim } => {
                let settlements =
                    settle.iter().map(|(token, act)| Settlement::new(*token, decision(*act))).collect();
                let exchanged = store.exchange(Exchange { settlements, claim }).await?;
                Ok(Answer::Exchanged(settle, exchanged))
            }
            Self::Cancel(ids) => {
                let answers = store.cancel(ids.clone()).await?;
                Ok(Answer::Cancelled(ids, answers))
            }
            Self::Replay(ids) => {
                let answers = store.replay(ids.iter().copied().map(Replay::raw).collect()).await?;
                Ok(Answer::Replayed(ids, answers))
            }
            Self::Discard(ids) => {
                let answers = store.discard(ids.clone(), "by hand".to_owned()).await?;
                Ok(Answer::Discarded(ids, answers))
            }
            other => other.quietly(store).await.map(|()| Answer::Nothing),
        }
    }

    /// What needs no answer.
    async fn quietly(self, store: PostgresStore) -> Result<(), StoreError> {
        match self {
            Self::Renew(tokens) => store.renew(Renewal { tokens, lease: LEASE }).await.map(drop),
            Self::Sweep => store.sweep().await,
            Self::Died(process) => store.process_died(process, "signal 9".to_owned()).await.map(drop),
            Self::BeginEpoch => store.begin_epoch().await.map(drop),
            Self::Gate(queue, gate) => match gated() {
                Ok(gated) => store.set_type_gate(&queue, &gated, gate).await,
                Err(_) => Ok(()),
            },
            Self::DeadLetter(ids) => store.dead_letter(ids, "by hand".to_owned()).await.map(drop),
            Self::Hasten(ids) => store.hasten(ids).await.map(drop),
            Self::Purge(queue) => store.purge(&queue, Duration::ZERO, 10).await.map(drop),
            Self::Reset(ids) => store.reset_attempts(ids).await.map(drop),
            Self::Pause(queue, paused) => store.set_paused(&queue, paused).await,
            Self::Restore(ids) => store.restore(ids).await.map(drop),
            Self::ReleaseFollowers(queue, stream) => store.release_followers(&queue, &stream).await.map(drop),
            Self::Push(_)
            | Self::Adopt(_)
            | Self::Exchange { .. }
            | Self::Cancel(_)
            | Self::Replay(_)
            | Self::Discard(_) => Ok(()),
        }
    }
}
