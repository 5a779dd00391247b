//! Messages are handed out (contract 8–12, 18, 21). The claim never searches: it reads fresh messages at
//! a cursor and waiting ones from an index that holds only what can be claimed.

use rusqlite::params;
use sickbay_core::port::Claim;
use sickbay_core::stats::TypeGate;
use sickbay_core::{Decision, Delivery, StoreError, bug};

use super::failure::Translate;
use super::place::{Band, Place};
use super::row::{MESSAGE_COLUMNS, MessageRow};
use super::state::{Leased, Taken};
use super::tx::{Tx, at_hand};
use super::waiting::{WAITING_COLUMNS, WAITING_WIDTH, read_waiting};

/// How many messages a claim may pass over before it lets others have a turn.
const SKIPS_MAX: u32 = 1000;

/// What a claim has gathered.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) taken: Vec<Taken>,
    skips: u32,
    /// A suspect became claimable on the way, which is handed out alone: nothing else is taken.
    suspect: bool,
}

impl Gathered {
    fn may_go_on(&self, max: u32) -> bool {
        self.taken.len() < max as usize && self.skips < SKIPS_MAX && !self.suspect
    }
}

/// What came of a claim.
pub(super) struct Claimed {
    pub(super) deliveries: Vec<Delivery>,
    /// It passed over so much that it should be asked again soon.
    pub(super) again: bool,
}

impl Tx<'_> {
    /// Hands out what is due and eligible.
    pub(super) fn claim(&mut self, claim: &Claim) -> Result<Claimed, StoreError> {
        let queue_no = self.queue_no(&claim.queue)?;
        let mut gathered = Gathered::default();
        let nothing = |again| Ok(Claimed { deliveries: Vec::new(), again });
        let process = self.state.processes.entry(claim.process).or_default();
        process.claims_from(queue_no, claim.worker.as_str(), self.now);
        let (busy, alone) = (process.in_hand > 0, process.holds_suspect);
        if alone || claim.max == 0 || self.queue(queue_no)?.paused {
            return nothing(false);
        }
        if self.suspects_wait_for(claim.process)? {
            if busy || !self.gather_suspect(queue_no, &mut gathered)? {
                return nothing(false);
            }
        } else {
            self.gather(queue_no, claim, &mut gathered)?;
            // Those that come back first may have to wait for their streams.
            while gathered.may_go_on(claim.max) && self.reopen_probed(queue_no)? {
                self.gather(queue_no, claim, &mut gathered)?;
            }
            // What was passed over may have made room for something more urgent than itself.
            let mut skips = 0;
            while gathered.taken.is_empty() && (skips + 1..SKIPS_MAX).contains(&gathered.skips) {
                skips = gathered.skips;
                self.gather(queue_no, claim, &mut gathered)?;
            }
            // Or for a suspect.
            if gathered.taken.is_empty()
                && gathered.skips > 0
                && !busy
                && self.suspects_wait_for(claim.process)?
            {
                self.gather_suspect(queue_no, &mut gathered)?;
            }
        }
        if gathered.taken.is_empty() {
            return nothing(gathered.skips >= SKIPS_MAX);
        }
        Ok(Claimed { deliveries: self.hand_out(claim, queue_no, gathered.taken)?, again: false })
    }

    /// Gathers from all priorities of a queue, the most urgent first.
    fn gather(&mut self, queue_no: i64, claim: &Claim, gathered: &mut Gathered) -> Result<(), StoreError> {
        let run_max = self.queue(queue_no)?.policy.run_max.max(1);
        let mut index = 0;
        while index < 10 && gathered.may_go_on(claim.max) {
            let band = if bug!(PriorityInverted) { 9 - index } else { index };
            let again = self.gather_band(queue_no, band, claim.max, run_max, gathered)?;
            gathered.suspect = again && self.suspects_wait_for(claim.process)?;
            index = if again { 0 } else { index + 1 };
        }
        Ok(())
    }

    /// Gathers from one priority of a queue: waiting and fresh messages, whichever is due first. True if something
    /// became claimable on the way that may come before all others.
    fn gather_band(
        &mut self,
        queue_no: i64,
        index: usize,
        max: u32,
        run_max: u32,
        gathered: &mut Gathered,
    ) -> Result<bool, StoreError> {
        loop {
            let need = max as usize - gathered.taken.len();
            let (band, position) = {
                let queue = self.queue(queue_no)?;
                (queue.band(index), queue.bands[index])
            };
            let wanted = need.min(SKIPS_MAX as usize);
            let fresh = if position.cursor < position.last {
                self.fresh_rows(band, position.cursor, wanted)?
            } else {
                Vec::new()
            };
            // Waiting messages are read only if one of them could be due before the last fresh one.
            let ready_due = self.queue(queue_no)?.ready.first_due(index as i64).unwrap_or(i64::MAX);
            let last = (fresh.len() == wanted).then(|| fresh[wanted - 1].pushed_at);
            let now = self.now;
            let before = |due: i64| due <= now && last.is_none_or(|last| last >= due);
            let mut due = if before(position.next_due) { self.due_rows(band, wanted)? } else { Vec::new() };
            if due.is_empty() && before(position.next_due) {
                self.renew_hint(queue_no, index, band)?;
            }
            let mut more_due = due.len() == wanted;
            if before(ready_due) {
                more_due |= self.add_ready(queue_no, index, wanted, &mut due)?;
            }
            let short = due.len() < wanted && fresh.len() < wanted;
            if due.is_empty() && fresh.is_empty() {
                // What lay there was taken out by hand.
                self.queue(queue_no)?.bands[index].cursor = position.last;
                return Ok(false);
            }
            let candidates = Candidates { more_due, more_fresh: last.is_some(), due, fresh };
            if self.merge(candidates, max, run_max, gathered)? {
                return Ok(true);
            }
            if gathered.taken.len() >= max as usize || gathered.skips >= SKIPS_MAX {
                return Ok(false);
            }
            if short {
                self.renew_hint(queue_no, index, band)?;
                let position = self.queue(queue_no)?.bands[index];
                if position.next_due > self.now && position.cursor >= position.last {
                    return Ok(false);
                }
            }
        }
    }

    /// Adds the messages kept in memory to those read from the index, in order, as far as both are known.
    /// True if there may be more.
    fn add_ready(
        &mut self,
        queue_no: i64,
        index: usize,
        wanted: usize,
        due: &mut Vec<Taken>,
    ) -> Result<bool, StoreError> {
        let ready = self.queue(queue_no)?.ready.take(index as i64, wanted);
        let full = |list: &[Taken]| (list.len() == wanted).then(|| list.last().map(order)).flatten();
        let known_until = [full(due), full(&ready)].into_iter().flatten().min();
        due.extend(ready);
        due.sort_by_key(order);
        if let Some(until) = known_until {
            let rest = due.split_off(due.partition_point(|taken| order(taken) <= until));
            self.keep_ready(rest.into_iter())?;
        }
        Ok(known_until.is_some())
    }

    /// Takes candidates in the order of their times and numbers. True if one that was passed over let another go.
    fn merge(
        &mut self,
        candidates: Candidates,
        max: u32,
        run_max: u32,
        gathered: &mut Gathered,
    ) -> Result<bool, StoreError> {
        let mut freed = false;
        // A full list may go on: when it is used up, both are read again.
        let Candidates { more_due, more_fresh, .. } = candidates;
        let mut due = candidates.due.into_iter().peekable();
        let mut fresh = candidates.fresh.into_iter().peekable();
        while !freed && gathered.taken.len() < max as usize && gathered.skips < SKIPS_MAX {
            let waiting_first = match (due.peek(), fresh.peek()) {
                (None, None) => break,
                (Some(_), None) if more_fresh => break,
                (None, Some(_)) if more_due => break,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some(w), Some(f)) => order(w) < (f.pushed_at, Place(f.place).number()),
            };
            let before = gathered.taken.len();
            if waiting_first {
                let Some(candidate) = due.next() else { break };
                freed = self.take_waiting(candidate, gathered)?;
                if gathered.taken.len() > before {
                    let room = max as usize - gathered.taken.len();
                    self.take_run(room.min(run_max as usize - 1) as u32, gathered)?;
                }
            } else {
                let Some(row) = fresh.next() else { break };
                self.take_fresh(row, gathered)?;
            }
            gathered.skips += u32::from(gathered.taken.len() == before);
        }
        self.keep_ready(due)?;
        Ok(freed)
    }

    /// What was not needed of the messages kept in memory goes back there.
    fn keep_ready(&mut self, rest: impl Iterator<Item = Taken>) -> Result<(), StoreError> {
        for taken in rest.filter(|taken| taken.lease.in_memory) {
            self.queue(taken.lease.place.queue())?.ready.insert(taken);
        }
        Ok(())
    }

    fn renew_hint(&mut self, queue_no: i64, index: usize, band: Band) -> Result<(), StoreError> {
        let next: Option<i64> = self
            .prepare("SELECT min(due_at) FROM waiting WHERE state = 0 AND band = ?1")?
            .query_row([band.0], |row| row.get(0))
            .translated()?;
        self.queue(queue_no)?.bands[index].next_due = next.unwrap_or(i64::MAX);
        Ok(())
    }

    fn due_rows(&self, band: Band, count: usize) -> Result<Vec<Taken>, StoreError> {
        let mut statement = self.prepare(&format!(
            "SELECT {WAITING_COLUMNS}, {MESSAGE_COLUMNS} FROM waiting w JOIN message m ON m.place = w.place
             WHERE w.state = 0 AND w.band = ?1 AND w.due_at <= ?2 ORDER BY w.due_at, w.number LIMIT ?3"
        ))?;
        let now = if bug!(DeliveredEarly) { self.now + 2000 } else { self.now };
        let rows = statement.query_map(params![band.0, now, count as i64], read_taken).translated()?;
        rows.collect::<rusqlite::Result<_>>().translated()
    }

    fn fresh_rows(&self, band: Band, cursor: i64, count: usize) -> Result<Vec<MessageRow>, StoreError> {
        let mut statement = self.prepare(&format!(
            "SELECT {MESSAGE_COLUMNS} FROM message m WHERE m.place > ?1 AND m.place <= ?2 ORDER BY m.place LIMIT ?3"
        ))?;
        let mut rows = statement.query(params![cursor, band.fresh().1, count as i64]).translated()?;
        let mut fresh = Vec::with_capacity(count);
        while let Some(row) = rows.next().translated()? {
            fresh.push(MessageRow::read(row, 0).translated()?);
        }
        Ok(fresh)
    }

    pub(super) fn read_candidate(&self, place: Place) -> Result<Taken, StoreError> {
        self.prepare(&format!(
            "SELECT {WAITING_COLUMNS}, {MESSAGE_COLUMNS} FROM waiting w JOIN message m ON m.place = w.place
             WHERE w.place = ?1"
        ))?
        .query_row([place.0], read_taken)
        .translated()
    }

    /// True if messages of this type may be delivered.
    pub(super) fn gate_is_open(&self, queue: i64, type_no: Option<i64>) -> bool {
        let gate = type_no.and_then(|no| self.state.queues.get(&queue)?.gates.get(&no));
        matches!(gate, None | Some(TypeGate::Open | TypeGate::Probing { left: 1.. }))
            || bug!(PausedTypeDelivered) && matches!(gate, Some(TypeGate::Paused))
    }

    /// Counts a probe down.
    fn pass_gate(&mut self, queue: i64, type_no: Option<i64>) -> Result<(), StoreError> {
        let Some(no) = type_no else { return Ok(()) };
        let Some(TypeGate::Probing { left }) = self.queue(queue)?.gates.get_mut(&no) else { return Ok(()) };
        *left = left.saturating_sub(1);
        let left = *left;
        self.execute(
            "UPDATE type_gate SET probes_left = ?3 WHERE queue = ?1 AND type = ?2",
            params![queue, no, left],
        )?;
        Ok(())
    }

    /// Takes a fresh message, or sets it where it belongs.
    fn take_fresh(&mut self, row: MessageRow, gathered: &mut Gathered) -> Result<(), StoreError> {
        let place = Place(row.place);
        let mut lease = Leased::fresh(place, row.pushed_at.min(self.now), row.type_no);
        lease.keyed = row.key.is_some();
        lease.payload_bytes = row.payload.len() as u64;
        let queue = self.queue(place.queue())?;
        queue.band_of(place).cursor = place.0;
        let gated = !queue.gates.is_empty();
        self.begin()?;
        if gated && !self.gate_is_open(place.queue(), row.type_no) {
            return self.put_waiting(lease, 2);
        }
        if row.expected_checksum(place.number()) != row.checksum {
            return self.set_corrupt_aside(lease);
        }
        if gated {
            self.pass_gate(place.queue(), row.type_no)?;
        }
        lease.counters.deliveries = 1;
        gathered.taken.push(Taken { lease, row });
        Ok(())
    }

    /// Takes a waiting message, or sets it where it belongs. True if another one of its stream can be claimed instead.
    pub(super) fn take_waiting(
        &mut self,
        candidate: Taken,
        gathered: &mut Gathered,
    ) -> Result<bool, StoreError> {
        let Taken { mut lease, row } = candidate;
        (lease.pushed_at, lease.payload_bytes) = (row.pushed_at, row.payload.len() as u64);
        let (place, queue) = (lease.place, lease.place.queue());
        self.begin()?;
        if !self.gate_is_open(queue, row.type_no) {
            self.set_waiting_state(place, 2)?;
            return self.let_next_go(row.stream);
        }
        if let Some(stream) = row.stream {
            if self.state.leased_streams.contains_key(&stream) && !bug!(TwoOfAStreamOut) {
                return self.demote(stream, place, lease.due_at, lease.suspect).map(|()| false);
            }
            let deferred = self
                .prepare("SELECT 1 FROM entry WHERE stream = ?1 AND deferred = 1 AND number = ?2")?
                .exists(params![stream, place.number() as i64])
                .translated()?;
            lease.stream = Some((stream, deferred));
        }
        lease.keyed = row.key.is_some();
        if row.expected_checksum(place.number()) != row.checksum {
            return self.set_corrupt_aside(lease).map(|()| false);
        }
        if !self.passes_key(&lease, &row)? {
            // If it was done, the next one was let go with it.
            self.let_next_go(row.stream)?;
            return Ok(row.stream.is_some());
        }
        self.pass_gate(queue, row.type_no)?;
        self.lease_waiting(&mut lease)?;
        gathered.taken.push(Taken { lease, row });
        Ok(false)
    }

    /// An entry was kept back that others of its stream may have waited for.
    pub(super) fn let_next_go(&mut self, stream: Option<i64>) -> Result<bool, StoreError> {
        stream.map_or(Ok(false), |stream| self.let_stream_go(stream))
    }

    /// Goes on with the entries that directly follow the first one of a stream.
    fn take_run(&mut self, count: u32, gathered: &mut Gathered) -> Result<(), StoreError> {
        let Some(Taken { lease, .. }) = gathered.taken.last() else { return Ok(()) };
        let Some((stream, false)) = lease.stream else { return Ok(()) };
        if lease.suspect || count == 0 {
            return Ok(());
        }
        for entry in self.following(stream, lease.place.number(), count)? {
            if entry.due_at > self.now || self.is_held(stream, entry.number)? {
                break;
            }
            let Some((mut lease, _)) = self.read_live(entry.place)? else { break };
            if lease.suspect || !self.gate_is_open(entry.place.queue(), lease.type_no) {
                break;
            }
            let row = self.read_row(entry.place)?;
            if row.expected_checksum(entry.number) != row.checksum
                || lease.counters.replays > 0 && row.key.is_some()
            {
                break;
            }
            self.pass_gate(entry.place.queue(), lease.type_no)?;
            lease.stream = Some((stream, false));
            self.lease_waiting(&mut lease)?;
            gathered.taken.push(Taken { lease, row });
        }
        Ok(())
    }

    pub(super) fn read_row(&self, place: Place) -> Result<MessageRow, StoreError> {
        self.prepare(&format!("SELECT {MESSAGE_COLUMNS} FROM message m WHERE m.place = ?1"))?
            .query_row([place.0], |row| MessageRow::read(row, 0))
            .translated()
    }

    /// Counts the delivery of a message that has a row in `waiting`.
    fn lease_waiting(&mut self, lease: &mut Leased) -> Result<(), StoreError> {
        let counts = !bug!(CountedOnFailureOnly) || lease.cause != Some(sickbay_core::Cause::Crashed);
        lease.counters.deliveries += u32::from(counts);
        // The journal alone tells of one that was kept in memory.
        if lease.in_waiting && !lease.in_memory {
            let sql =
                "UPDATE waiting SET state = 1, deliveries = deliveries + 1, claim = ?2 WHERE place = ?1";
            let values = params![lease.place.0, self.state.last_claim as i64 + 1];
            at_hand(&mut self.hot.lease_waiting, self.connection, sql)?.execute(values).translated()?;
        }
        if let Some((stream, _)) = lease.stream {
            self.lease_stream(stream);
        }
        Ok(())
    }

    /// The bytes are not those that were pushed: nobody gets to see them.
    fn set_corrupt_aside(&mut self, lease: Leased) -> Result<(), StoreError> {
        let stream = lease.stream;
        self.queue(lease.place.queue())?.tally().active += 1;
        let failure = crate::door::corrupt();
        let set_aside = sickbay_core::decide::SetAside::Corrupt;
        let ending = super::settle::Ending { started_at: self.now, ..Default::default() };
        self.carry_out(lease, Decision::Quarantine { set_aside, failure }, ending)?;
        match stream {
            Some((stream, _)) => self.free_stream(stream),
            None => Ok(()),
        }
    }
}

/// When a waiting message takes its turn.
fn order(taken: &Taken) -> (i64, u64) {
    (taken.lease.due_at, taken.lease.place.number())
}

struct Candidates {
    /// There may be more than were read.
    more_due: bool,
    more_fresh: bool,
    due: Vec<Taken>,
    fresh: Vec<MessageRow>,
}

pub(super) fn read_taken(row: &rusqlite::Row<'_>) -> rusqlite::Result<Taken> {
    let mut lease = read_waiting(row)?;
    lease.in_memory = row.get::<_, i64>(WAITING_WIDTH - 1)? == 5;
    Ok(Taken { lease, row: MessageRow::read(row, WAITING_WIDTH)? })
}
