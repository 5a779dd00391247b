//! What callers do at the same time.

use std::time::Duration;

use sickbay_core::decide::SetAside;
use sickbay_core::port::{Claim, Exchange, Exchanged, ProcessId, Pushed, Renewal, Replay, Store};
use sickbay_core::{
    Decision, Delivery, Failure, Key, LeaseToken, MessageId, NewMessage, QueueName, Settlement, StoreError,
    StreamKey, WorkerName,
};

use super::{Held, OTHER, QUEUES};
use crate::dice::Dice;

const LEASE: Duration = Duration::from_secs(30);
/// Longer than any script.
const PATIENCE: Duration = Duration::from_secs(86_400);

/// Which of the deliveries in hand: those whose numbers leave this rest when they are divided by three.
type Third = u64;

/// What one caller wants.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    /// Messages, in a stream or with a key, or neither.
    Push { queue: usize, count: u64, stream: Option<usize>, key: Option<usize> },
    /// Hands in what became of deliveries, and perhaps asks for more.
    Settle { how: How, which: Third, more: bool },
    /// Asks for deliveries, for this process or another one.
    Claim { queue: usize, max: u32, other: bool },
    /// Waits for deliveries.
    Wait { queue: usize, max: u32 },
    /// Prolongs leases.
    Renew(Third),
    /// Acts of operators on one message.
    Desk(Wish, u64),
    /// Stops or goes on with a queue.
    Pause { queue: usize, paused: bool },
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Done,
    Failed,
    Poison,
    Untried,
}

/// What an operator wants.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    DeadLetter,
    Replay,
    Discard,
    Cancel,
    Hasten,
}

impl Deed {
    /// How many messages it pushes at most.
    pub(super) fn pushes(&self) -> u64 {
        if let Self::Push { count, .. } = self { *count } else { 0 }
    }
}

/// Two to six deeds at the same time. The claim that waits is the last of them: it is served after all others.
pub(super) fn random(dice: &mut Dice, pushed: &mut u64) -> Vec<Deed> {
    let count = 2 + dice.roll(5);
    let waits = dice.once_in(3);
    let mut deeds: Vec<Deed> = (0..count).map(|_| one(dice, pushed, waits)).collect();
    if waits {
        deeds.push(Deed::Wait { queue: 0, max: 1 + dice.roll(3) as u32 });
    }
    deeds
}

fn one(dice: &mut Dice, pushed: &mut u64, waits: bool) -> Deed {
    let queue = dice.roll(QUEUES.len());
    match dice.roll(16) {
        0..=5 => {
            let count = 1 + dice.roll(3) as u64;
            *pushed += count;
            let stream = dice.once_in(3).then(|| dice.roll(2));
            let key = dice.once_in(4).then(|| dice.roll(4));
            Deed::Push { queue, count, stream, key }
        }
        6..=9 => {
            let how = [How::Done, How::Done, How::Failed, How::Poison, How::Untried][dice.roll(5)];
            Deed::Settle { how, which: dice.number() % 3, more: !waits && dice.once_in(2) }
        }
        10 | 11 if !waits => Deed::Claim { queue, max: 1 + dice.roll(4) as u32, other: dice.once_in(4) },
        12 => Deed::Renew(dice.number() % 3),
        13 => Deed::Pause { queue: 1, paused: dice.once_in(2) },
        _ => {
            let wishes = [Wish::DeadLetter, Wish::Replay, Wish::Discard, Wish::Cancel, Wish::Hasten];
            Deed::Desk(wishes[dice.roll(wishes.len())], 1 + dice.number() % (*pushed).max(1))
        }
    }
}

/// A deed with all that it needs to know.
pub(super) struct Act {
    deed: Deed,
    tokens: Vec<LeaseToken>,
    process: ProcessId,
}

/// Everybody knows what is in hand at the beginning.
pub(super) fn acts(deeds: &[Deed], held: &Held, process: ProcessId) -> Vec<Act> {
    let act = |deed: &Deed| {
        let third = match deed {
            Deed::Settle { which, .. } | Deed::Renew(which) => Some(*which),
            _ => None,
        };
        let wanted = held.iter().filter(|(number, _)| Some(*number % 3) == third);
        Act { deed: deed.clone(), tokens: wanted.map(|(_, token)| *token).collect(), process }
    };
    deeds.iter().map(act).collect()
}

/// What came of a deed.
#[derive(Default)]
pub(super) struct Done {
    answer: String,
    settled: Vec<LeaseToken>,
    taken: Vec<LeaseToken>,
}

impl Done {
    /// Changes what is in hand by it; its answer, without what two stores may call differently.
    pub(super) fn take_over(self, held: &mut Held) -> String {
        for token in self.settled {
            // Somebody else may have got the message meanwhile, with a token of its own.
            let number = token.message.number();
            if held.get(&number) == Some(&token) {
                held.remove(&number);
            }
        }
        held.extend(self.taken.into_iter().map(|token| (token.message.number(), token)));
        self.answer
    }

    /// What a claim gets for which there is nothing.
    pub(super) fn nothing_yet() -> Self {
        exchanged(Ok(Exchanged::default()), Vec::new())
    }

    fn of<T>(result: Result<T, StoreError>, say: impl FnOnce(T) -> String) -> Self {
        let answer = result.map_or_else(|error| error.code().to_owned(), say);
        Self { answer, ..Self::default() }
    }
}

fn queue(index: usize) -> QueueName {
    QUEUES[index % QUEUES.len()].parse().unwrap_or_else(|_| panic!("a name"))
}

impl Act {
    /// True for a claim that may have to wait.
    pub(super) fn waits(&self) -> bool {
        matches!(self.deed, Deed::Wait { .. })
    }

    /// On a store where others act at the same time.
    pub(super) async fn run(self, store: &dyn Store) -> Done {
        self.run_waiting(store, PATIENCE).await
    }

    /// On a store where nobody else does.
    pub(super) async fn run_at_once(self, store: &dyn Store) -> Done {
        self.run_waiting(store, Duration::ZERO).await
    }

    async fn run_waiting(self, store: &dyn Store, wait: Duration) -> Done {
        match self.deed.clone() {
            Deed::Push { queue: at, count, stream, key } => {
                let pushed = store.push((0..count).map(|_| message(at, stream, key)).collect()).await;
                Done::of(pushed, |pushed| {
                    format!("{:?}", pushed.into_iter().map(Pushed::id).collect::<Vec<_>>())
                })
            }
            Deed::Settle { how, more, .. } => self.settle(store, how, more).await,
            Deed::Claim { queue, max, other } => {
                let process = if other { OTHER } else { self.process };
                let exchange = Exchange::claim(claim(queue, process, max, Duration::ZERO));
                exchanged(store.exchange(exchange).await, Vec::new())
            }
            Deed::Wait { queue, max } => {
                let exchange = Exchange::claim(claim(queue, self.process, max, wait));
                exchanged(store.exchange(exchange).await, Vec::new())
            }
            Deed::Renew(_) => {
                let renewed = store.renew(Renewal { tokens: self.tokens, lease: LEASE }).await;
                Done::of(renewed, |lost| format!("{} lost", lost.len()))
            }
            Deed::Desk(wish, number) => desk(store, wish, number).await,
            Deed::Pause { queue: at, paused } => {
                Done::of(store.set_paused(&queue(at), paused).await, |()| "ok".to_owned())
            }
        }
    }

    async fn settle(self, store: &dyn Store, how: How, more: bool) -> Done {
        let settlements = self.tokens.iter().map(|token| Settlement::new(*token, decision(how)));
        let settlements: Vec<Settlement> = settlements.collect();
        let claim = more.then(|| claim(0, self.process, 2, Duration::ZERO));
        let claim = claim.filter(|_| !settlements.is_empty());
        exchanged(store.exchange(Exchange { settlements, claim }).await, self.tokens)
    }
}

fn message(at: usize, stream: Option<usize>, key: Option<usize>) -> NewMessage {
    let mut message = NewMessage::new(queue(at), "several at once");
    if let Some(Ok(stream)) = stream.map(|number| StreamKey::new(format!("stream-{number}"))) {
        message = message.stream(stream);
    }
    if let Some(Ok(key)) = key.map(|number| Key::new(format!("key-{number}"))) {
        message = message.key(key);
    }
    message
}

fn decision(how: How) -> Decision {
    let failure = Failure::unknown("it did not work".to_owned());
    match how {
        How::Done => Decision::Complete,
        How::Failed => Decision::Retry { after: Duration::from_secs(1), failure },
        How::Poison => Decision::Quarantine { set_aside: SetAside::NonRetryableError, failure },
        How::Untried => Decision::Release { after: Duration::ZERO },
    }
}

fn claim(at: usize, process: ProcessId, max: u32, wait: Duration) -> Claim {
    let worker = WorkerName::new("one-of-many").unwrap_or_else(|_| panic!("a name"));
    Claim { queue: queue(at), worker, process, max, wait, lease: LEASE }
}

fn exchanged(exchanged: Result<Exchanged, StoreError>, settled: Vec<LeaseToken>) -> Done {
    match exchanged {
        Err(error) => Done::of(Err::<(), _>(error), |()| String::new()),
        Ok(exchanged) => {
            let taken: Vec<LeaseToken> = exchanged.deliveries.iter().map(Delivery::token).collect();
            let numbers: Vec<u64> = taken.iter().map(|token| token.message.number()).collect();
            let answer = format!("{:?} {numbers:?}", exchanged.settled);
            Done { answer, settled, taken }
        }
    }
}

async fn desk(store: &dyn Store, wish: Wish, number: u64) -> Done {
    let Some(id) = MessageId::from_number(number) else { return Done::default() };
    let why = "somebody said so".to_owned();
    let answers = match wish {
        Wish::DeadLetter => store.dead_letter(vec![id], why).await,
        Wish::Replay => store.replay(vec![Replay::raw(id)]).await,
        Wish::Discard => store.discard(vec![id], why).await,
        Wish::Cancel => store.cancel(vec![id]).await,
        Wish::Hasten => store.hasten(vec![id]).await,
    };
    Done::of(answers, |answers| format!("{answers:?}"))
}
