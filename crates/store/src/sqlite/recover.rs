//! What an earlier owner left in its hands (contract 17).

use std::cmp::Reverse;

use rusqlite::Connection;
use sickbay_core::StoreError;
use sickbay_core::port::ProcessId;

use super::failure::Translate;
use super::load::load_bands;
use super::place::{Place, unpack};
use super::state::{ClaimInfo, State};
use super::tx::{Hot, Tx};
use super::waiting::is_held;

/// How long a lease of unknown end goes on after a failed commit.
const UNKNOWN_LEASE_MS: i64 = 30_000;

impl Tx<'_> {
    /// Settles what the journal says was in hand when the last owner stopped. What the owner held
    /// itself died with it; what others held is merely out of touch.
    pub(super) fn recover(&mut self, owner: ProcessId, evidence: &str) -> Result<(), StoreError> {
        self.begin()?;
        read_journal(self.connection, self.state, None, self.now)?;
        let mut processes: Vec<ProcessId> = self.state.claims.values().map(|claim| claim.process).collect();
        processes.sort_unstable();
        processes.dedup();
        for process in processes.into_iter().filter(|process| *process == owner) {
            self.process_died(process, evidence)?;
        }
        // Their leases end now, because they were given out in another epoch.
        for lease in self.state.leases.values_mut() {
            lease.until = self.now;
        }
        let claims: Vec<u64> = self.state.claims.keys().copied().collect();
        self.state.expiries.extend(claims.into_iter().map(|claim| Reverse((self.now, claim))));
        self.expire_leases()?;
        self.state.ended_claims.clear();
        self.execute("DELETE FROM claim", [])?;
        self.unblock_streams()?;
        self.state.processes.clear();
        self.refresh_bands()
    }

    /// Entries that waited for a stream that nobody holds any more.
    fn unblock_streams(&mut self) -> Result<(), StoreError> {
        self.state.demoted.clear();
        self.state.leased_streams.clear();
        let mut statement = self.prepare(
            "SELECT w.place FROM waiting w JOIN message m ON m.place = w.place
             JOIN entry e ON e.stream = m.stream AND e.deferred = 1 AND e.number = w.number WHERE w.state = 3",
        )?;
        let rows = statement.query_map([], |row| row.get::<_, i64>(0)).translated()?;
        let places: Vec<i64> = rows.collect::<rusqlite::Result<_>>().translated()?;
        for place in places {
            self.unblock(Place(place))?;
        }
        Ok(())
    }

    fn refresh_bands(&mut self) -> Result<(), StoreError> {
        let queues: Vec<i64> = self.state.queues.keys().copied().collect();
        for no in queues {
            let bands = load_bands(self.connection, no)?;
            self.queue(no)?.bands = bands;
        }
        Ok(())
    }
}

/// Writes the log back and begins it anew. What an earlier owner could not sync may be in the system's memory only, and no
/// later sync of the log would notice: nothing is built on it there.
pub(super) fn write_log_back(connection: &Connection) -> Result<(), StoreError> {
    connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).translated()
}

/// Moves what is scheduled if the machine's clock has been set back since the last commit, so that everything waits as
/// long as it was meant to: what was due is due, and nothing waits for the clock to catch up.
pub(super) fn follow_clock(connection: &Connection, now: i64) -> Result<(), StoreError> {
    let last_at: i64 = connection.query_row("SELECT last_at FROM mark", [], |row| row.get(0)).translated()?;
    if last_at <= now {
        return Ok(());
    }
    let sql = format!(
        "BEGIN IMMEDIATE;
         UPDATE waiting SET due_at = due_at - {back} WHERE due_at > {now} AND due_at < {endless};
         UPDATE entry SET due_at = due_at - {back} WHERE due_at > {now} AND due_at < {endless};
         UPDATE key SET done_until = done_until - {back} WHERE done_until > {now} AND done_until < {endless};
         UPDATE mark SET last_at = {now};
         COMMIT;",
        back = last_at - now,
        endless = i64::MAX,
    );
    connection.execute_batch(&sql).translated().inspect_err(|_| drop(connection.execute_batch("ROLLBACK")))
}

/// After a failed commit the same owner goes on: leases that the file knows are still held.
pub(super) fn restore_leases(
    connection: &Connection,
    state: &mut State,
    before: &State,
    now: i64,
) -> Result<(), StoreError> {
    read_journal(connection, state, Some(before), now)?;
    for (process, known) in &before.processes {
        state.processes.entry(*process).or_default().queues.clone_from(&known.queues);
    }
    state.demoted.clone_from(&before.demoted);
    let queues: Vec<i64> = state.queues.keys().copied().collect();
    for no in queues {
        let mut bands = load_bands(connection, no)?;
        for lease in state.leases.values().filter(|lease| lease.place.queue() == no) {
            let band = &mut bands[(lease.place.band().0 & 15).min(9) as usize];
            if lease.place.is_fresh() {
                band.cursor = band.cursor.max(lease.place.0);
            }
        }
        if let Some(queue) = state.queue(no) {
            queue.bands = bands;
        }
    }
    Ok(())
}

/// Reads who holds what from the journal.
fn read_journal(
    connection: &Connection,
    state: &mut State,
    before: Option<&State>,
    now: i64,
) -> Result<(), StoreError> {
    let mut statement = connection
        .prepare("SELECT no, process, worker, claimed_at, places FROM claim ORDER BY no")
        .translated()?;
    let mut rows = statement.query([]).translated()?;
    while let Some(row) = rows.next().translated()? {
        let claim = row.get::<_, i64>(0).translated()? as u64;
        let process = ProcessId(row.get::<_, i64>(1).translated()? as u64);
        let mut info = ClaimInfo {
            process,
            worker: row.get::<_, String>(2).translated()?.into(),
            claimed_at: row.get(3).translated()?,
            numbers: Vec::new(),
            left: 0,
        };
        for place in unpack(row.get_ref(4).translated()?.as_blob().unwrap_or_default()) {
            let until = before
                .and_then(|before| before.leases.get(&Place(place).number()))
                .map_or(now + UNKNOWN_LEASE_MS, |lease| lease.until);
            if restore_lease(connection, state, Place(place), claim, (now, until))? {
                info.numbers.push(Place(place).number());
                info.left += 1;
                state.expiries.push(Reverse((until, claim)));
                let held = state.leases.get(&Place(place).number()).is_some_and(|lease| lease.suspect);
                let process = state.processes.entry(process).or_default();
                process.in_hand += 1;
                process.holds_suspect |= held;
            }
        }
        state.last_claim = state.last_claim.max(claim);
        state.claims.insert(claim, info);
    }
    Ok(())
}

/// True if the message is still in hand under this claim.
fn restore_lease(
    connection: &Connection,
    state: &mut State,
    place: Place,
    claim: u64,
    (now, until): (i64, i64),
) -> Result<bool, StoreError> {
    use rusqlite::OptionalExtension;
    let holder: Option<(i64, Option<i64>)> = connection
        .prepare_cached("SELECT state, claim FROM waiting WHERE place = ?1")
        .translated()?
        .query_row([place.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
        .translated()?;
    if holder.is_some_and(|(state, by)| !is_held(state, by, claim as i64)) {
        return Ok(false);
    }
    // What was set aside lies where it lay when it was leased.
    let mut dead = connection.prepare_cached("SELECT 1 FROM dead WHERE place = ?1").translated()?;
    if dead.exists([place.0]).translated()? {
        return Ok(false);
    }
    let limits = crate::door::Limits::default();
    let tx = Tx { connection, state, now, limits: &limits, open: &mut true, hot: Hot::default() };
    let live = tx.read_live(place)?;
    drop(tx);
    let Some((mut lease, _)) = live else { return Ok(false) };
    if holder.is_none_or(|(state, _)| state == 5) {
        lease.counters.deliveries += 1;
        if let Some(queue) = state.queue(place.queue()) {
            queue.ready.remove(place, lease.due_at);
        }
    }
    lease.claim = claim;
    lease.until = until;
    if let Some((stream, _)) = lease.stream {
        *state.leased_streams.entry(stream).or_default() += 1;
    }
    state.leases.insert(place.number(), lease);
    Ok(true)
}
