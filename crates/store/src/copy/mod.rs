//! Copying a store into another one, of the same kind or another: everything that is in it, with the same ids and in
//! the same order. It can be killed anywhere and goes on where it stopped; at the end both stores are read and
//! compared.

mod digest;

use std::collections::BTreeMap;

use sickbay_core::port::{CopyStep, Export, Identity, Import, PageSize, Progress};
use sickbay_core::record::{Cursor, Record, RecordKind};
use sickbay_core::{ErrorKind, MessageId, StoreError};

use self::digest::Sums;

/// How many damaged messages are named.
const DAMAGED_NAMED_MAX: usize = 100;

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// An earlier run had begun it.
    pub resumed: bool,
    /// How many records of each kind there are, the same in both stores.
    pub records: BTreeMap<RecordKind, u64>,
    /// How many attempts are in the histories of messages.
    pub attempts: u64,
    /// Bytes of payload, original ones included.
    pub bytes: u64,
    /// How many messages have bytes that are not those that were pushed. They are damaged in the copy too.
    pub damaged: u64,
    /// The first of them.
    pub damaged_ids: Vec<MessageId>,
}

/// What a copy does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// It copies records of this kind.
    Copying(RecordKind),
    /// It makes claimable what can be claimed of streams.
    Arranging,
    /// It compares both stores.
    Verifying,
}

/// Copies everything, and compares. `told` is called now and then with what happens and how many records were
/// copied, or compared, so far.
pub async fn copy(
    source: &dyn Export,
    target: &dyn Import,
    size: PageSize,
    mut told: impl FnMut(CopyState, u64) + Send,
) -> Result<Copied, StoreError> {
    let identity = source.identity().await?;
    if target.identity().await?.store == identity.store {
        return Err(same_store());
    }
    let mut progress = target.begin(&identity).await?;
    let resumed = progress.turns > 0;
    progress = copy_records(source, target, size, progress, &mut told).await?;
    while let CopyStep::Streams(_) = progress.step {
        told(CopyState::Arranging, progress.records);
        progress = target.arrange(&progress).await?;
    }
    let told_of = std::sync::Mutex::new((told, 0));
    let note = |records: u64| {
        let mut said = told_of.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        said.1 += records;
        let compared = said.1;
        (said.0)(CopyState::Verifying, compared / 2);
    };
    let (here, there) = futures::try_join!(read_all(source, size, &note), read_all(target, size, &note))?;
    if let Some(difference) = here.sums.difference(&there.sums) {
        return Err(differs(&difference));
    }
    if source.identity().await?.moved != identity.moved {
        return Err(differs("the source was changed while it was copied"));
    }
    target.complete(&progress).await?;
    Ok(here.report(resumed))
}

/// Copies the records that are left: the next page is read while one is written.
async fn copy_records(
    source: &dyn Export,
    target: &dyn Import,
    size: PageSize,
    mut progress: Progress,
    told: &mut (impl FnMut(CopyState, u64) + Send),
) -> Result<Progress, StoreError> {
    let CopyStep::Records(cursor) = &progress.step else { return Ok(progress) };
    let mut kind = cursor.kind;
    let mut page = source.export(cursor, size).await?;
    loop {
        told(CopyState::Copying(kind), progress.records);
        let next = page.next.take();
        let step = match &next {
            Some(cursor) => CopyStep::Records(cursor.clone()),
            None => CopyStep::Streams(Cursor::default()),
        };
        let turned = progress.turned(step, page.records.len());
        let read = async {
            match &next {
                Some(cursor) => source.export(cursor, size).await.map(Some),
                None => Ok(None),
            }
        };
        let (written, read) = futures::join!(target.import(page.records, &turned), read);
        written?;
        progress = turned;
        match (read?, next) {
            (Some(read), Some(cursor)) => (page, kind) = (read, cursor.kind),
            _ => return Ok(progress),
        }
    }
}

/// What was found in a store.
#[derive(Default)]
struct Read {
    sums: Sums,
    attempts: u64,
    bytes: u64,
    damaged: u64,
    damaged_ids: Vec<MessageId>,
}

async fn read_all(
    store: &(impl Export + ?Sized),
    size: PageSize,
    note: &(impl Fn(u64) + Sync),
) -> Result<Read, StoreError> {
    let mut read = Read::default();
    let mut next = Some(Cursor::default());
    while let Some(cursor) = next {
        let page = store.export(&cursor, size).await?;
        page.records.iter().for_each(|record| read.add(record));
        note(page.records.len() as u64);
        next = page.next;
    }
    Ok(read)
}

impl Read {
    fn add(&mut self, record: &Record) {
        self.sums.add(record);
        let Some(body) = record.body() else { return };
        self.attempts += body.history.len() as u64;
        self.bytes += body.bytes();
        if body.damaged {
            self.damaged += 1;
            if self.damaged_ids.len() < DAMAGED_NAMED_MAX {
                self.damaged_ids.push(body.message.id);
            }
        }
    }

    fn report(self, resumed: bool) -> Copied {
        let records = RecordKind::ALL.into_iter().map(|kind| (kind, self.sums.count(kind))).collect();
        let Self { attempts, bytes, damaged, damaged_ids, .. } = self;
        Copied { resumed, records, attempts, bytes, damaged, damaged_ids }
    }
}

/// What went through the queues and is in them, as one number that SQL can make of the table `tally`.
pub(crate) const MOVED: &str = "coalesce(sum(3 * pushed + 5 * completed + 7 * duplicates + 11 * failures + 13 * quarantined \
    + 17 * replayed + 19 * removed + 23 * live + 29 * dead + 31 * discarded), 0)";

/// How far a copy has got, as text.
pub(crate) fn write(progress: &Progress) -> Result<String, StoreError> {
    serde_json::to_string(progress).map_err(|error| unreadable(&error))
}

/// The inverse of [`write`].
pub(crate) fn read(text: &str) -> Result<Progress, StoreError> {
    serde_json::from_str(text).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, "SB0012", format!("the progress of the copy makes no sense: {error}"))
}

/// Goes on with a copy of the same source, if that has not changed.
pub(crate) fn go_on(begun: Progress, source: &Identity, how_to_drop: &str) -> Result<Progress, StoreError> {
    let known = &begun.source;
    let numbers =
        |identity: &Identity| (identity.moved, identity.marks.last_number, identity.marks.last_dead);
    if known.store != source.store || numbers(known) != numbers(source) {
        return Err(other_copy(how_to_drop));
    }
    Ok(Progress { source: source.clone(), ..begun })
}

/// The target is a copy that is complete.
pub(crate) fn already(done: &Progress, source: &Identity) -> StoreError {
    let same = done.source.store == source.store;
    not_empty(if same {
        "is a complete copy of this source already"
    } else {
        "is a complete copy of another store"
    })
}

/// What a table of the target holds, in words.
pub(crate) fn holding(table: &str, count: u64) -> String {
    let what = match table {
        "queue" => "queues",
        "message" | "waiting" => "messages",
        "lease" => "leases",
        "dead" => "dead letters",
        "completed" => "completed messages",
        "key" => "keys",
        _ => "origins",
    };
    let count = if count < 1000 { format!("{count}") } else { "1,000 or more".to_owned() };
    format!("has {what} already ({count})")
}

/// The target already holds something (`SB0070`).
pub(crate) fn not_empty(what: &str) -> StoreError {
    let text = format!("the target of a copy must be empty, and it {what}; nothing was changed");
    StoreError::new(ErrorKind::Conflict, "SB0070", text)
}

/// The target holds the beginning of another copy (`SB0071`).
fn other_copy(how_to_drop: &str) -> StoreError {
    let text = format!(
        "the target holds the beginning of a copy of another store, or this one has changed since; {how_to_drop}, and copy again"
    );
    StoreError::new(ErrorKind::Conflict, "SB0071", text)
}

/// The store is a copy that was not finished (`SB0071`).
pub(crate) fn unfinished(store: &str, how_to_drop: &str) -> StoreError {
    let text = format!(
        "{store} is a copy that is not complete; finish it with the same `sickbay copy`, or {how_to_drop}"
    );
    StoreError::new(ErrorKind::Conflict, "SB0071", text)
}

/// Somebody else writes the same copy (`SB0071`).
pub(crate) fn another_copies() -> StoreError {
    let text = "somebody else copies into the same target at this moment; nothing was changed";
    StoreError::new(ErrorKind::Conflict, "SB0071", text)
}

/// Somebody works on the source (`SB0072`).
#[cfg(feature = "postgres")]
pub(crate) fn in_use(who: &str) -> StoreError {
    let text = format!("a store is copied while nobody works on it: {who}; stop them first");
    StoreError::new(ErrorKind::Conflict, "SB0072", text)
}

/// What was copied is not what is in the source (`SB0073`).
fn differs(difference: &str) -> StoreError {
    let text = format!("the copy is not what the source is: {difference}");
    StoreError::new(ErrorKind::Corrupt, "SB0073", text)
}

/// Source and target are one (`SB0074`).
fn same_store() -> StoreError {
    StoreError::new(ErrorKind::Invalid, "SB0074", "the source and the target of the copy are the same store")
}
