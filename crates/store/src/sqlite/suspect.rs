//! Suspects run alone (contract 18): who waits for one, and which comes first.

use sickbay_core::StoreError;
use sickbay_core::bug;
use sickbay_core::port::ProcessId;

use super::claim::Gathered;
use super::failure::Translate;
use super::place::{Band, Place};
use super::tx::Tx;

impl Tx<'_> {
    /// True if a suspect can be claimed in any queue that the process works on.
    pub(super) fn suspects_wait_for(&mut self, process: ProcessId) -> Result<bool, StoreError> {
        let queues: Vec<i64> = match self.state.processes.get(&process) {
            Some(process) => process.works_on(self.now).map(|(queue, _)| queue).collect(),
            None => return Ok(false),
        };
        for no in queues.into_iter().filter(|_| !bug!(SuspectsNotAlone)) {
            while let Some((place, due_at)) = self.first_suspect(no)? {
                let (type_no, stream) = self.type_and_stream(place)?;
                if !self.gate_is_open(no, type_no) {
                    self.begin()?;
                    self.set_waiting_state(place, 2)?;
                    self.let_next_go(stream)?;
                } else if let Some(stream) = stream.filter(|s| self.state.leased_streams.contains_key(s)) {
                    self.demote(stream, place, due_at, true)?;
                    self.forget_candidate(place, due_at)?;
                } else {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn type_and_stream(&self, place: Place) -> Result<(Option<i64>, Option<i64>), StoreError> {
        self.prepare("SELECT type, stream FROM message WHERE place = ?1")?
            .query_row([place.0], |row| Ok((row.get(0)?, row.get(1)?)))
            .translated()
    }

    /// The first suspect of a queue that is due.
    fn first_suspect(&mut self, queue_no: i64) -> Result<Option<(Place, i64)>, StoreError> {
        let now = self.now;
        let queue = self.queue(queue_no)?;
        if queue.paused {
            return Ok(None);
        }
        let Some((index, due_at, number)) = queue.suspects.iter().find(|suspect| suspect.1 <= now).copied()
        else {
            // A probe may let one through that is still held back.
            return if self.reopen_probed_suspects(queue_no)? {
                self.first_suspect(queue_no)
            } else {
                Ok(None)
            };
        };
        let band = Band(queue_no << 4 | index);
        for place in [Place::parked(band, number), Place::fresh(band, number)] {
            if self
                .prepare("SELECT 1 FROM waiting WHERE place = ?1 AND state = 4")?
                .exists([place.0])
                .translated()?
            {
                return Ok(Some((place, due_at)));
            }
        }
        self.queue(queue_no)?.suspects.remove(&(index, due_at, number));
        self.first_suspect(queue_no)
    }

    pub(super) fn gather_suspect(
        &mut self,
        queue_no: i64,
        gathered: &mut Gathered,
    ) -> Result<bool, StoreError> {
        while let Some((place, due_at)) = self.first_suspect(queue_no)? {
            self.forget_candidate(place, due_at)?;
            let candidate = self.read_candidate(place)?;
            self.take_waiting(candidate, gathered)?;
            // One that a gate, its stream or its key keeps back is no reason to give nothing.
            if !gathered.taken.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
