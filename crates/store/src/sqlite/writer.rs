//! The one thread that writes. It takes every operation that waits, carries them all out in one
//! transaction, serves the claims that wait, commits once, and only then answers.

use std::sync::Arc;

use rusqlite::Connection;
use sickbay_core::port::{Claim, Exchange, Exchanged};
use sickbay_core::{Clock, Decision, ErrorKind, StoreError, Timestamp, bug};

use super::failure::Translate;
use super::file::File;
use super::mark::Mark;
use super::state::State;
use super::sync::mpsc::{Receiver, RecvTimeoutError};
use super::sync::oneshot;
use super::tx::{Hot, Tx};
use super::{Policies, load, recover};
use crate::door::Limits;

/// How many operations share a commit at most.
const OPERATIONS_MAX: usize = 4096;

/// How often what is old is forgotten, while there is something to do.
const SWEEP_EVERY_MS: i64 = 60_000;

/// How often a store whose disk fails tries again though nobody asks.
const TRY_AGAIN_MS: i64 = 1000;

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;
/// Called after the commit, with what came of it.
pub(super) type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// An operation that is answered once, after the next commit.
pub(super) trait Job: Send {
    /// Carries it out and answers later. `Err` if the transaction cannot go on.
    fn carry_out(self: Box<Self>, tx: &mut Tx<'_>) -> (Answer, Result<(), StoreError>);
    /// It is not carried out.
    fn refuse(self: Box<Self>, error: StoreError);
}

/// What the writer is asked to do.
pub(super) enum Op {
    /// Anything that is answered after the next commit.
    Job(Box<dyn Job>),
    /// Settlements and a claim that may wait.
    Exchange(Exchange, Reply<Exchanged>),
    /// The clock moved.
    Tick,
    /// Stop, tidily or as if the process had died.
    Close { tidily: bool },
}

/// A claim that waits for something to become eligible.
struct Waiting {
    claim: Claim,
    until: i64,
    reply: Reply<Exchanged>,
}

/// What came of an exchange.
enum Came {
    /// It is answered after the commit.
    Answer(Exchanged),
    /// Nothing is eligible; its claim waits.
    Waits { claim: Claim, until: i64 },
}

/// An exchange whose answer goes out after the commit.
struct Served {
    reply: Reply<Exchanged>,
    answer: Exchanged,
}

/// The writer's own things.
pub(super) struct Writer {
    pub(super) file: File,
    pub(super) state: State,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: Limits,
    pub(super) policies: Arc<Policies>,
    pub(super) last_now: i64,
    last_sweep: i64,
    waiting: Vec<Waiting>,
    /// What is remembered could not be read again after a failure: nothing is built on it until it is.
    unread: bool,
    /// The last turn failed.
    failed: bool,
}

/// What one turn gathers until its commit.
#[derive(Default)]
struct Turn {
    answers: Vec<Answer>,
    served: Vec<Served>,
    close: Option<bool>,
    /// A claim wants to be asked again at once.
    again: bool,
}

impl Writer {
    pub(super) fn new(
        file: File,
        state: State,
        clock: Arc<dyn Clock>,
        limits: Limits,
        policies: Arc<Policies>,
    ) -> Self {
        let last_now = clock.now().millis();
        Self {
            file,
            state,
            clock,
            limits,
            policies,
            last_now,
            last_sweep: 0,
            waiting: Vec::new(),
            unread: false,
            failed: false,
        }
    }

    /// Works until it is told to stop.
    pub(super) fn run(mut self, operations: &Receiver<Op>) {
        let mut again = false;
        loop {
            let mut turn = Turn::default();
            let first = if again { operations.try_recv().ok() } else { self.wait(operations) };
            let mut batch = Vec::new();
            batch.extend(first);
            while batch.len() < OPERATIONS_MAX
                && let Ok(operation) = operations.try_recv()
            {
                batch.push(operation);
            }
            self.turn(batch, &mut turn);
            again = turn.again;
            if let Some(tidily) = turn.close {
                return self.close(tidily);
            }
        }
    }

    /// Blocks until an operation comes or something happens by itself.
    fn wait(&mut self, operations: &Receiver<Op>) -> Option<Op> {
        let next = self.next_event();
        let received = if next == i64::MAX {
            operations.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            match self.clock.wait_for(Timestamp::from_millis(next)) {
                Some(timeout) => operations.recv_timeout(timeout),
                None if next <= self.clock.now().millis() => Err(RecvTimeoutError::Timeout),
                None => operations.recv().map_err(|_| RecvTimeoutError::Disconnected),
            }
        };
        match received {
            Ok(operation) => Some(operation),
            Err(RecvTimeoutError::Timeout) => Some(Op::Tick),
            Err(RecvTimeoutError::Disconnected) => Some(Op::Close { tidily: true }),
        }
    }

    /// When something is to be done though nobody asks.
    fn next_event(&self) -> i64 {
        if self.policies.check().is_err() {
            return i64::MAX;
        }
        if self.failed {
            return self.last_now.saturating_add(TRY_AGAIN_MS);
        }
        let claims = self.waiting.iter().map(|waiting| waiting.until).min().unwrap_or(i64::MAX);
        let mark = self.file.mark.as_ref().map_or(i64::MAX, Mark::sync_due);
        self.state.next_event(self.last_now).min(claims).min(mark)
    }

    /// One transaction.
    fn turn(&mut self, batch: Vec<Op>, turn: &mut Turn) {
        let clock = self.clock.now().millis();
        self.last_now = if bug!(LocalClockForLeases) { clock } else { self.last_now.max(clock) };
        // What is remembered of a store that failed may be ahead of its file: nothing is built on it.
        let failed = self.policies.check().and_then(|()| self.file.check_identity(self.last_now));
        let failed = failed.inspect_err(|error| self.policies.fail(error.clone()));
        // A disk that failed for a while may be well again.
        let failed = failed.and_then(|()| if self.unread { self.read_again() } else { Ok(()) });
        self.failed = failed.is_err();
        if let Err(error) = failed {
            turn.close = batch.iter().any(|operation| matches!(operation, Op::Close { .. })).then_some(false);
            // Nobody is served now; everybody is told why.
            for waiting in self.waiting.drain(..) {
                drop(waiting.reply.send(Err(error.clone())));
            }
            batch.into_iter().for_each(|operation| refuse(operation, &error));
            return;
        }
        self.state.nearly_full = self.file.is_nearly_full();
        let mut open = false;
        let result = self.carry_out(batch, turn, &mut open).and_then(|()| {
            if bug!(AcknowledgedBeforeCommit) {
                self.answer(turn, &Ok(()));
            }
            self.commit(&mut open)
        });
        if let Err(error) = &result {
            turn.again = false;
            self.failed = true;
            self.give_up(error, open);
        }
        self.answer(turn, &result);
        if let Some(mark) = &mut self.file.mark {
            mark.sync_at(self.last_now);
        }
    }

    fn carry_out(&mut self, batch: Vec<Op>, turn: &mut Turn, open: &mut bool) -> Result<(), StoreError> {
        let mut failure = self.by_itself(open);
        for operation in batch {
            match (operation, &failure) {
                (Op::Tick, _) => {}
                (Op::Close { tidily }, _) => turn.close = Some(tidily),
                // What comes after a failure is not carried out, but everybody is answered.
                (operation, Err(error)) => refuse(operation, error),
                (Op::Job(job), Ok(())) => {
                    let (answer, result) = job.carry_out(&mut self.tx(open));
                    turn.answers.push(answer);
                    failure = result;
                }
                (Op::Exchange(exchange, reply), Ok(())) => {
                    failure = self.exchange(exchange, reply, turn, open);
                }
            }
        }
        failure?;
        self.tx(open).reopen_some()?;
        if turn.close.is_none() {
            self.serve_waiting(turn, open)?;
        }
        Ok(())
    }

    /// What time brings, whoever asks for what.
    fn by_itself(&mut self, open: &mut bool) -> Result<(), StoreError> {
        self.tx(open).expire_leases()?;
        if self.last_now - self.last_sweep >= SWEEP_EVERY_MS {
            self.tx(open).forget_old_keys()?;
            self.tx(open).forget_completed()?;
            self.last_sweep = self.last_now;
        }
        Ok(())
    }

    fn tx<'a>(&'a mut self, open: &'a mut bool) -> Tx<'a> {
        Tx {
            connection: &self.file.connection,
            state: &mut self.state,
            now: self.last_now,
            limits: &self.limits,
            open,
            hot: Hot::default(),
        }
    }

    fn exchange(
        &mut self,
        exchange: Exchange,
        reply: Reply<Exchanged>,
        turn: &mut Turn,
        open: &mut bool,
    ) -> Result<(), StoreError> {
        if let Err(error) = self.check_exchange(&exchange) {
            drop(reply.send(Err(error)));
            return Ok(());
        }
        match self.try_exchange(exchange, turn, open) {
            Ok(Came::Answer(answer)) => turn.served.push(Served { reply, answer }),
            Ok(Came::Waits { claim, until }) => self.waiting.push(Waiting { claim, until, reply }),
            Err(error) => {
                drop(reply.send(Err(error.clone())));
                return Err(error);
            }
        }
        Ok(())
    }

    fn try_exchange(
        &mut self,
        exchange: Exchange,
        turn: &mut Turn,
        open: &mut bool,
    ) -> Result<Came, StoreError> {
        let settles = !exchange.settlements.is_empty();
        let settled = self.tx(open).settle(exchange.settlements)?;
        let mut deliveries = Vec::new();
        if let Some(claim) = exchange.claim {
            let (now, at_once) = (self.last_now, claim.wait.is_zero());
            let earlier = self.waiting.iter().any(|waiting| waiting.claim.queue == claim.queue);
            if earlier && at_once && !settles {
                // Those that wait come first; who does not wait takes what they leave.
                self.serve_waiting(turn, open)?;
            }
            if settles || !earlier || at_once {
                let claimed = self.tx(open).claim(&claim)?;
                turn.again |= claimed.again;
                deliveries = claimed.deliveries;
            }
            if deliveries.is_empty() && !settles && !at_once {
                let until = now.saturating_add(i64::try_from(claim.wait.as_millis()).unwrap_or(i64::MAX));
                return Ok(Came::Waits { claim, until });
            }
        }
        Ok(Came::Answer(Exchanged { settled, deliveries }))
    }

    /// Refuses an exchange before any of it is carried out.
    fn check_exchange(&self, exchange: &Exchange) -> Result<(), StoreError> {
        let known = &self.state.queue_by_name;
        if let Some(claim) = exchange.claim.as_ref().filter(|claim| !known.contains_key(&claim.queue)) {
            let names = known.keys().map(sickbay_core::QueueName::as_str);
            return Err(crate::door::unknown_queue(&claim.queue, names));
        }
        let effects = exchange.settlements.iter().filter_map(|settlement| settlement.effect.as_ref());
        match effects.into_iter().all(sickbay_core::verdict::Effect::is::<super::SqliteEffect>) {
            true => Ok(()),
            false => Err(crate::door::foreign_effect()),
        }
    }

    /// Serves the claims that wait, the oldest first.
    fn serve_waiting(&mut self, turn: &mut Turn, open: &mut bool) -> Result<(), StoreError> {
        let now = self.last_now;
        let mut left = std::mem::take(&mut self.waiting).into_iter();
        while let Some(waiting) = left.next() {
            if waiting.reply.is_closed() {
                continue;
            }
            let claimed = self.tx(open).claim(&waiting.claim);
            let claimed = match claimed {
                Ok(claimed) => claimed,
                Err(error) => {
                    // They wait on: what failed may go well the next time.
                    self.waiting.push(waiting);
                    self.waiting.extend(left);
                    return Err(error);
                }
            };
            turn.again |= claimed.again;
            if claimed.deliveries.is_empty() && waiting.until > now {
                self.waiting.push(waiting);
            } else {
                let answer = Exchanged { settled: Vec::new(), deliveries: claimed.deliveries };
                turn.served.push(Served { reply: waiting.reply, answer });
            }
        }
        Ok(())
    }

    fn commit(&mut self, open: &mut bool) -> Result<(), StoreError> {
        let mut tx = self.tx(open);
        tx.drop_ended_claims()?;
        if *tx.open {
            tx.write_tallies()?;
            tx.prepare("COMMIT")?.execute([]).translated()?;
            *tx.open = false;
            drop(tx);
            if let Some(mark) = &mut self.file.mark {
                mark.write(self.state.reached());
            }
        }
        Ok(())
    }

    /// The transaction failed: what is remembered may be ahead of the file, so it is read again.
    fn give_up(&mut self, error: &StoreError, open: bool) {
        if open {
            drop(self.file.connection.execute_batch("ROLLBACK"));
        }
        self.unread =
            if error.kind() == ErrorKind::Full { self.reload() } else { self.read_again() }.is_err();
    }

    /// Trusts nothing in memory any more.
    fn read_again(&mut self) -> Result<(), StoreError> {
        self.file.reopen()?;
        self.reload()
    }

    fn reload(&mut self) -> Result<(), StoreError> {
        self.state = reload(&self.file.connection, &self.state, self.last_now)?;
        self.unread = false;
        Ok(())
    }

    /// Tells everybody. What nobody waits for any more is given back.
    fn answer(&mut self, turn: &mut Turn, result: &Result<(), StoreError>) {
        if result.is_ok() {
            self.policies.publish(&mut self.state);
        }
        for answer in turn.answers.drain(..) {
            answer(result.clone());
        }
        let mut unwanted = Vec::new();
        for served in turn.served.drain(..) {
            let answer = result.clone().map(|()| served.answer);
            if let Err(Ok(answer)) = served.reply.send(answer) {
                unwanted.extend(answer.deliveries.iter().map(|delivery| delivery.message.id.number()));
            }
        }
        if !unwanted.is_empty() {
            self.give_back(&unwanted);
            // Others may wait for it.
            turn.again = true;
        }
    }

    fn give_back(&mut self, numbers: &[u64]) {
        let mut open = false;
        let result = (|| {
            for number in numbers {
                self.tx(&mut open).give_back(*number)?;
            }
            self.commit(&mut open)
        })();
        if let Err(error) = result {
            self.give_up(&error, open);
        }
    }

    /// A tidy stop gives back what was handed out and says in the file that it was one.
    fn close(mut self, tidily: bool) {
        if !tidily {
            return;
        }
        let numbers: Vec<u64> = self.state.leases.keys().copied().collect();
        self.give_back(&numbers);
        drop(load::set_meta(&self.file.connection, "clean", 1));
        // Whoever opens it next sees from this whether the clock was set back meanwhile.
        drop(self.file.connection.execute("UPDATE mark SET last_at = max(last_at, ?1)", [self.last_now]));
        if let Some(mark) = &mut self.file.mark {
            mark.sync();
        }
    }
}

impl Tx<'_> {
    /// Gives a message back that never reached a handler.
    fn give_back(&mut self, number: u64) -> Result<(), StoreError> {
        self.begin()?;
        let Some((message, ending)) = self.take_lease(number) else { return Ok(()) };
        let stream = message.stream;
        self.carry_out(message, Decision::Release { after: std::time::Duration::ZERO }, ending)?;
        match stream {
            Some((stream, _)) => self.unlease_stream(stream),
            None => Ok(()),
        }
    }
}

fn refuse(operation: Op, error: &StoreError) {
    match operation {
        Op::Job(job) => job.refuse(error.clone()),
        Op::Exchange(_, reply) => drop(reply.send(Err(error.clone()))),
        Op::Tick | Op::Close { .. } => {}
    }
}

/// Reads what is remembered again; leases that the file still knows go on.
fn reload(connection: &Connection, before: &State, now: i64) -> Result<State, StoreError> {
    let mut state = load::load(connection)?;
    state.epoch = before.epoch;
    state.last_claim = before.last_claim;
    recover::restore_leases(connection, &mut state, before, now)?;
    Ok(state)
}
