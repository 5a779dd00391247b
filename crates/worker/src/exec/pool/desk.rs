//! Who gets which program: the state that messages and programs share.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use sickbay_core::MessageId;
use tokio::sync::Notify;

use super::PoolStats;
use super::job::Job;

/// How many suspects are remembered; the oldest is forgotten first.
const SUSPECTS_MAX: usize = 10_000;

/// What is known about all programs and all messages that want one.
pub(super) struct Desk {
    window: usize,
    seats: Vec<Seat>,
    /// Messages that no program has room for.
    waiting: VecDeque<Job>,
    suspects: Suspects,
    pub(super) stats: PoolStats,
}

/// A place for a program.
struct Seat {
    /// Its keeper runs.
    kept: bool,
    /// Its program died and is not started again yet.
    down: bool,
    /// It is busy with one message that must be alone.
    alone_now: bool,
    /// Messages that go to its program next.
    inbox: VecDeque<Job>,
    /// Messages that go to its program one at a time.
    alone: VecDeque<Job>,
    /// The messages in its inbox and in its program.
    ids: HashSet<MessageId>,
    wake: Arc<Notify>,
}

impl Desk {
    pub(super) fn new(programs: usize, window: usize) -> Self {
        let seat = |_| Seat {
            kept: false,
            down: false,
            alone_now: false,
            inbox: VecDeque::new(),
            alone: VecDeque::new(),
            ids: HashSet::new(),
            wake: Arc::default(),
        };
        Self {
            window,
            seats: (0..programs).map(seat).collect(),
            waiting: VecDeque::new(),
            suspects: Suspects::default(),
            stats: PoolStats::default(),
        }
    }

    /// Takes a message in. Answers with the seats that have work and no keeper yet.
    pub(super) fn submit(&mut self, job: Job) -> Vec<usize> {
        if job.ctx.is_suspect() || self.suspects.has(job.id()) {
            let seat = (0..self.seats.len()).min_by_key(|seat| self.seats[*seat].burden());
            self.isolate(seat.unwrap_or(0), [job]);
        } else {
            self.waiting.push_back(job);
        }
        self.distribute()
    }

    /// Takes a message back that no program has seen yet; `None` if one has.
    pub(super) fn withdraw(&mut self, ticket: u64) -> Option<Job> {
        let take = |queue: &mut VecDeque<Job>| {
            let place = queue.iter().position(|job| job.ticket == ticket)?;
            queue.remove(place)
        };
        if let Some(job) = take(&mut self.waiting) {
            return Some(job);
        }
        for seat in &mut self.seats {
            if let Some(job) = take(&mut seat.inbox) {
                seat.ids.remove(&job.id());
                return Some(job);
            }
            if let Some(job) = take(&mut seat.alone) {
                return Some(job);
            }
        }
        None
    }

    /// Gives what waits to the programs with the least to do. Answers with the seats that have work and
    /// no keeper yet.
    pub(super) fn distribute(&mut self) -> Vec<usize> {
        let mut skipped = VecDeque::new();
        while let Some(job) = self.waiting.pop_front() {
            if job.is_abandoned() {
                continue;
            }
            let free = |seat: &usize| self.seats[*seat].takes(job.id(), self.window);
            let Some(seat) = (0..self.seats.len()).filter(free).min_by_key(|seat| self.seats[*seat].load())
            else {
                let full = self.seats.iter().all(|seat| !seat.has_room(self.window));
                skipped.push_back(job);
                if full {
                    break;
                }
                continue;
            };
            let seat = &mut self.seats[seat];
            seat.ids.insert(job.id());
            seat.inbox.push_back(job);
            seat.wake.notify_one();
        }
        skipped.append(&mut self.waiting);
        self.waiting = skipped;
        self.stats.waiting = self.waiting.len() as u64;
        self.unkept()
    }

    fn unkept(&mut self) -> Vec<usize> {
        let wants = |seat: &Seat| !seat.kept && seat.has_work();
        let unkept: Vec<usize> = (0..self.seats.len()).filter(|seat| wants(&self.seats[*seat])).collect();
        for seat in &unkept {
            self.seats[*seat].kept = true;
        }
        unkept
    }

    pub(super) fn wake_of(&self, seat: usize) -> Arc<Notify> {
        Arc::clone(&self.seats[seat].wake)
    }

    pub(super) fn wake_all(&self) {
        self.seats.iter().for_each(|seat| seat.wake.notify_one());
    }

    pub(super) fn has_work(&self, seat: usize) -> bool {
        self.seats[seat].has_work()
    }

    /// What goes to a program next, given how many it has in hand: its inbox, or one that must be alone
    /// once its hands are empty.
    pub(super) fn take(&mut self, index: usize, in_hand: usize, jobs: &mut Vec<Job>) -> Vec<usize> {
        let seat = &mut self.seats[index];
        if seat.alone_now {
            return Vec::new();
        }
        if seat.alone.is_empty() {
            jobs.extend(seat.inbox.drain(..));
            return Vec::new();
        }
        self.empty_inbox(index);
        let seat = &mut self.seats[index];
        while in_hand == 0 && !seat.alone_now {
            let Some(job) = seat.alone.pop_front() else { break };
            if !job.is_abandoned() {
                seat.alone_now = true;
                seat.ids.insert(job.id());
                jobs.push(job);
            }
        }
        self.distribute()
    }

    /// Others may have room for what this program will not get soon.
    fn empty_inbox(&mut self, seat: usize) {
        let seat = &mut self.seats[seat];
        for job in seat.inbox.drain(..).rev() {
            seat.ids.remove(&job.id());
            self.waiting.push_front(job);
        }
    }

    /// Messages that a program is done with, whatever it answered: they did not kill it.
    pub(super) fn answered(&mut self, index: usize, ids: &[MessageId]) -> Vec<usize> {
        let seat = &mut self.seats[index];
        seat.alone_now = false;
        for id in ids {
            seat.ids.remove(id);
            self.suspects.clear(*id);
        }
        self.stats.answered += ids.len() as u64;
        // Nothing can have become free for others but this program.
        if self.waiting.is_empty() { Vec::new() } else { self.distribute() }
    }

    /// A program ended with these in hand; none of them is in it any more.
    pub(super) fn ended(&mut self, index: usize) {
        self.empty_inbox(index);
        let seat = &mut self.seats[index];
        seat.ids.clear();
        (seat.down, seat.alone_now) = (true, false);
    }

    /// The seat may be used again.
    pub(super) fn is_up(&mut self, index: usize) -> Vec<usize> {
        self.seats[index].down = false;
        self.distribute()
    }

    /// Puts messages back in front that a program never saw.
    pub(super) fn put_back(&mut self, jobs: impl DoubleEndedIterator<Item = Job>) {
        jobs.rev().for_each(|job| self.waiting.push_front(job));
    }

    /// From now on these are only run alone, until one is answered.
    pub(super) fn suspect(&mut self, id: MessageId) {
        self.suspects.add(id);
    }

    /// Lets these run alone at this seat.
    pub(super) fn isolate(&mut self, index: usize, jobs: impl IntoIterator<Item = Job>) {
        let seat = &mut self.seats[index];
        seat.alone.extend(jobs);
        seat.wake.notify_one();
    }

    /// Everything that is still waiting, for the end.
    pub(super) fn take_all(&mut self) -> Vec<Job> {
        let mut jobs: Vec<Job> = self.waiting.drain(..).collect();
        for seat in &mut self.seats {
            jobs.extend(seat.inbox.drain(..));
            jobs.extend(seat.alone.drain(..));
        }
        jobs
    }

    /// Everything that waits for this very program.
    pub(super) fn take_assigned(&mut self, index: usize) -> Vec<Job> {
        let seat = &mut self.seats[index];
        seat.ids.clear();
        seat.inbox.drain(..).chain(seat.alone.drain(..)).collect()
    }
}

impl Seat {
    /// How many messages it has or gets next.
    fn load(&self) -> usize {
        self.ids.len()
    }

    fn has_work(&self) -> bool {
        !self.inbox.is_empty() || !self.alone.is_empty()
    }

    /// The less, the sooner it can run a message alone.
    fn burden(&self) -> (bool, usize, usize) {
        (self.down, self.alone.len() + usize::from(self.alone_now), self.load())
    }

    fn has_room(&self, window: usize) -> bool {
        !self.down && !self.alone_now && self.alone.is_empty() && self.load() < window
    }

    /// The same message twice in one program could not be told apart.
    fn takes(&self, id: MessageId, window: usize) -> bool {
        self.has_room(window) && !self.ids.contains(&id)
    }
}

/// Messages that were in a program when it died or hung, together with others.
#[derive(Default)]
struct Suspects {
    known: HashSet<MessageId>,
    order: VecDeque<MessageId>,
}

impl Suspects {
    fn add(&mut self, id: MessageId) {
        if self.known.insert(id) {
            self.order.push_back(id);
        }
        while self.order.len() > SUSPECTS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    fn has(&self, id: MessageId) -> bool {
        self.known.contains(&id)
    }

    fn clear(&mut self, id: MessageId) {
        if !self.known.is_empty() && self.known.remove(&id) {
            self.order.retain(|known| *known != id);
        }
    }
}
