//! Rows as they lie in the database, and the checksum that shows whether they still are what was pushed.

use bytes::Bytes;
use rusqlite::Row;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The immutable part of a message.
#[derive(Clone, Debug)]
pub(super) struct MessageRow {
    pub(super) place: i64,
    pub(super) type_no: Option<i64>,
    pub(super) pushed_at: i64,
    pub(super) deadline_at: Option<i64>,
    pub(super) stream: Option<i64>,
    pub(super) key: Option<String>,
    pub(super) headers: Option<Vec<u8>>,
    pub(super) checksum: i64,
    pub(super) payload: Bytes,
}

/// The columns of [`MessageRow`] in the order in which it reads them.
pub(super) const MESSAGE_COLUMNS: &str =
    "m.place, m.type, m.pushed_at, m.deadline_at, m.stream, m.key, m.headers, m.checksum, m.payload";

impl MessageRow {
    /// Reads the columns from `at` on.
    pub(super) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            place: row.get(at)?,
            type_no: row.get(at + 1)?,
            pushed_at: row.get(at + 2)?,
            deadline_at: row.get(at + 3)?,
            stream: row.get(at + 4)?,
            key: row.get(at + 5)?,
            headers: row.get(at + 6)?,
            checksum: row.get(at + 7)?,
            payload: Bytes::copy_from_slice(row.get_ref(at + 8)?.as_blob()?),
        })
    }

    /// The checksum that this row should have.
    pub(super) fn expected_checksum(&self, number: u64) -> i64 {
        let facts = [
            number as i64,
            self.pushed_at,
            self.type_no.unwrap_or(-1),
            self.deadline_at.unwrap_or(-1),
            self.stream.unwrap_or(-1),
        ];
        let mut bytes = [0u8; 40];
        for (slot, fact) in bytes.chunks_exact_mut(8).zip(facts) {
            slot.copy_from_slice(&fact.to_le_bytes());
        }
        let mut sum = xxh3_64_with_seed(&self.payload, xxh3_64(&bytes));
        if let Some(key) = &self.key {
            sum = xxh3_64_with_seed(key.as_bytes(), sum);
        }
        if let Some(headers) = &self.headers {
            sum = xxh3_64_with_seed(headers, sum ^ 1);
        }
        sum as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_message_is_in_its_checksum() {
        let row = MessageRow {
            place: 1,
            type_no: Some(1),
            pushed_at: 2,
            deadline_at: None,
            stream: None,
            key: Some("k".into()),
            headers: Some(vec![1]),
            checksum: 0,
            payload: Bytes::from_static(b"payload"),
        };
        let sum = row.expected_checksum(5);
        let changed = [
            MessageRow { type_no: None, ..row.clone() },
            MessageRow { pushed_at: 3, ..row.clone() },
            MessageRow { deadline_at: Some(1), ..row.clone() },
            MessageRow { stream: Some(1), ..row.clone() },
            MessageRow { key: Some("l".into()), ..row.clone() },
            MessageRow { headers: None, ..row.clone() },
            MessageRow { payload: Bytes::from_static(b"paYload"), ..row.clone() },
        ];
        assert!(changed.iter().all(|other| other.expected_checksum(5) != sum));
        assert_ne!(row.expected_checksum(6), sum, "the bytes of another message do not pass");
    }
}
