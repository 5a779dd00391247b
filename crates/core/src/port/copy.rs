//! What a store offers for being copied. Nobody works on either store meanwhile.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::record::{Cursor, Marks, Record, RecordPage};

/// How much one page of records may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// At most so many records.
    pub rows_max: u32,
    /// No further record once they are so many bytes together.
    pub bytes_max: u64,
}

impl Default for PageSize {
    fn default() -> Self {
        Self { rows_max: 4000, bytes_max: 8 << 20 }
    }
}

/// Which store it is, and how far it has got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Which store: no other has the same.
    pub store: String,
    /// Numbers that are not given again.
    pub marks: Marks,
    /// What went through its queues and is in them, added up: it changes with nearly everything that happens.
    pub moved: i64,
}

/// How far a copy has got; kept in its target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What is copied.
    pub source: Identity,
    /// What comes next.
    pub step: CopyStep,
    /// Records so far.
    pub records: u64,
    /// How many transactions it took so far: of two who copy at the same time one is refused.
    pub turns: u64,
}

impl Progress {
    /// Nothing is copied yet.
    pub fn begin(source: &Identity) -> Self {
        Self { source: source.clone(), step: CopyStep::Records(Cursor::default()), records: 0, turns: 0 }
    }

    /// After one more transaction.
    #[must_use]
    pub fn turned(&self, step: CopyStep, records: usize) -> Self {
        let records = self.records + records as u64;
        Self { source: self.source.clone(), step, records, turns: self.turns + 1 }
    }
}

/// What is to be done next for a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyStep {
    /// Records from here on.
    Records(Cursor),
    /// Streams from here on: which of their messages can be claimed.
    Streams(Cursor),
    /// Comparing both stores.
    Verify,
}

/// A store that is read record by record.
#[async_trait]
pub trait Export: Send + Sync {
    /// Which store it is.
    async fn identity(&self) -> Result<Identity, StoreError>;

    /// The records that follow. What it reads never changes while it is open.
    async fn export(&self, after: &Cursor, size: PageSize) -> Result<RecordPage, StoreError>;
}

/// An empty store that is filled with the records of another.
#[async_trait]
pub trait Import: Export {
    /// Begins a copy, or finds out how far the same copy had got. From now on nobody can work on the store until the
    /// copy is complete. Refused if anything is in the store (`SB0070`).
    async fn begin(&self, source: &Identity) -> Result<Progress, StoreError>;

    /// Takes records in and writes down how far the copy has got, in one transaction.
    async fn import(&self, records: Vec<Record>, progress: &Progress) -> Result<(), StoreError>;

    /// Looks at some streams, makes claimable what can be claimed of them, and writes down with it how far the copy
    /// has got, in one transaction. Answers that; its step is no longer [`CopyStep::Streams`] once all are done.
    async fn arrange(&self, progress: &Progress) -> Result<Progress, StoreError>;

    /// The copy is complete: the store can be worked on. No number of the source is ever given again, and no lease
    /// token of the source counts here.
    async fn complete(&self, progress: &Progress) -> Result<(), StoreError>;
}
