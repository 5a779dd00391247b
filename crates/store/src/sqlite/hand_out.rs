//! A claimed batch is written down and becomes deliveries.

use std::cmp::Reverse;
use std::collections::HashMap;

use rusqlite::params;
use sickbay_core::port::Claim;
use sickbay_core::{Delivery, Key, Lease, LeaseToken, Message, StoreError, StreamKey, Timestamp};

use super::failure::Translate;
use super::place::pack;
use super::state::{ClaimInfo, Taken};
use super::tx::Tx;
use crate::pack::unpack_headers;

impl Tx<'_> {
    /// Writes one journal row for the batch, so that the deliveries are counted before anybody sees them.
    pub(super) fn hand_out(
        &mut self,
        claim: &Claim,
        queue_no: i64,
        taken: Vec<Taken>,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.begin()?;
        let number = self.state.last_claim + 1;
        self.state.last_claim = number;
        let until = self.after(claim.lease);
        let places: Vec<i64> = taken.iter().map(|taken| taken.lease.place.0).collect();
        let again: Vec<i64> =
            taken.iter().filter(|taken| taken.lease.in_memory).map(|taken| taken.lease.place.0).collect();
        self.execute(
            "INSERT INTO claim VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                number as i64,
                claim.process.0 as i64,
                claim.worker.as_str(),
                self.now,
                pack(&places),
                (!again.is_empty()).then(|| pack(&again))
            ],
        )?;
        let info = ClaimInfo {
            process: claim.process,
            worker: claim.worker.as_str().into(),
            claimed_at: self.now,
            numbers: taken.iter().map(|taken| taken.lease.place.number()).collect(),
            left: taken.len() as u32,
        };
        self.state.claims.insert(number, info);
        self.state.expiries.push(Reverse((until, number)));
        let process = self.state.processes.entry(claim.process).or_default();
        process.in_hand += taken.len() as u32;
        process.holds_suspect = taken.iter().any(|taken| taken.lease.suspect);
        self.queue(queue_no)?.tally().active += taken.len() as i64;
        let mut streams = HashMap::new();
        let mut deliveries = Vec::with_capacity(taken.len());
        for mut one in taken {
            one.lease.claim = number;
            one.lease.in_memory = false;
            one.lease.until = until;
            deliveries.push(self.delivery(claim, until, &one, &mut streams)?);
            one.lease.row = Some(Box::new(one.row));
            self.state.leases.insert(one.lease.place.number(), one.lease);
        }
        Ok(deliveries)
    }

    fn delivery(
        &self,
        claim: &Claim,
        until: i64,
        taken: &Taken,
        streams: &mut HashMap<i64, Option<StreamKey>>,
    ) -> Result<Delivery, StoreError> {
        let Taken { lease, row } = taken;
        let id = lease.place.id().ok_or_else(super::failure::numbers_spent)?;
        let stream = match row.stream {
            None => None,
            Some(no) => match streams.get(&no) {
                Some(known) => known.clone(),
                None => streams.entry(no).or_insert(self.stream_key(no)?).clone(),
            },
        };
        let message = Message {
            id,
            queue: claim.queue.clone(),
            message_type: row.type_no.and_then(|no| self.state.type_names.get(&no).cloned()),
            stream,
            key: row.key.as_deref().and_then(|key| Key::new(key).ok()),
            priority: lease.place.priority(),
            pushed_at: Timestamp::from_millis(row.pushed_at),
            deadline_at: row.deadline_at.map(Timestamp::from_millis),
            headers: unpack_headers(row.headers.as_deref()),
            payload: row.payload.clone(),
        };
        let token = LeaseToken { epoch: self.state.epoch, claim: lease.claim, message: id };
        Ok(Delivery {
            message,
            lease: Lease {
                token,
                granted_at: Timestamp::from_millis(self.now),
                expires_at: Timestamp::from_millis(until),
            },
            counters: lease.counters,
            stages: lease.stages,
            cause: lease.cause,
            suspect: lease.suspect,
        })
    }

    pub(super) fn stream_key(&self, no: i64) -> Result<Option<StreamKey>, StoreError> {
        use rusqlite::OptionalExtension;
        let key: Option<String> = self
            .prepare("SELECT key FROM stream WHERE no = ?1")?
            .query_row([no], |row| row.get(0))
            .optional()
            .translated()?;
        Ok(key.and_then(|key| StreamKey::new(key).ok()))
    }
}
