//! Stores are copied with everything in them.

pub(crate) mod scene;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use sickbay_core::port::{
    CopyStep, Desk, Export, Identity, Import, PageSize, ProcessId, Progress, Pusher, Store,
};
use sickbay_core::record::{Cursor, Record, RecordKind, RecordPage};
use sickbay_core::{ErrorKind, MessageId, NewMessage, QueuePolicy, StoreError};
use sickbay_store::{Copied, SqliteAtRest, SqliteOptions, SqliteStore, copy};
use sickbay_testkit::ManualClock;
use tempfile::TempDir;

use self::scene::{Hand, queue};

/// A page so small that a copy takes many transactions.
pub(crate) const SMALL: PageSize = PageSize { rows_max: 3, bytes_max: 2000 };

/// A folder and a clock for SQLite stores.
pub(crate) struct Files {
    pub(crate) clock: ManualClock,
    folder: TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        Self { clock: ManualClock::new(), folder: folder.unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn options(&self) -> SqliteOptions {
        SqliteOptions::new(Arc::new(self.clock.clone())).log_bytes(0)
    }

    pub(crate) fn open(&self, name: &str) -> SqliteStore {
        SqliteStore::open(self.path(name), self.options()).unwrap()
    }

    pub(crate) fn source(&self, name: &str) -> SqliteAtRest {
        SqliteAtRest::open_source(self.path(name), &self.options()).unwrap()
    }

    pub(crate) fn target(&self, name: &str) -> SqliteAtRest {
        SqliteAtRest::open_target(self.path(name), &self.options()).unwrap()
    }

    /// A store with everything in it.
    pub(crate) async fn filled(&self, name: &str) -> String {
        let store = self.open(name);
        let hand = Hand { store: &store, clock: &self.clock };
        hand.fill().await;
        hand.picture().await
    }
}

/// Copies without telling anybody.
pub(crate) async fn copied(
    source: &dyn Export,
    target: &dyn Import,
    size: PageSize,
) -> Result<Copied, StoreError> {
    copy(source, target, size, |_, _| {}).await
}

/// All records of a store, as text that does not depend on which store it is.
pub(crate) async fn records(store: &dyn Export) -> String {
    let mut all = Vec::new();
    let mut next = Some(Cursor::default());
    while let Some(cursor) = next {
        let RecordPage { mut records, next: further } =
            store.export(&cursor, PageSize::default()).await.unwrap();
        for record in &mut records {
            if let Record::Dead(dead) = record {
                dead.error = sickbay_store::door::searched(&dead.error).to_owned();
            }
        }
        all.extend(records.iter().map(|record| format!("{record:?}")));
        next = further;
    }
    all.sort();
    all.join("\n")
}

/// Two pictures are the same; otherwise the first line that differs is shown.
#[track_caller]
pub(crate) fn assert_same(expected: &str, found: &str) {
    let mut lines = expected.lines().zip(found.lines()).enumerate();
    if let Some((at, (left, right))) = lines.find(|(_, (left, right))| left != right) {
        let before: Vec<&str> = expected.lines().skip(at.saturating_sub(30)).take(30).collect();
        let short = |text: &str| text.chars().take(600).collect::<String>();
        let before: Vec<String> = before.into_iter().map(short).collect();
        panic!("line {at}:\n{}\nexpected {}\nfound    {}", before.join("\n"), short(left), short(right));
    }
    assert_eq!(expected.lines().count(), found.lines().count());
}

/// A target that fails at a transaction of our choice, before or after it is committed.
pub(crate) struct Failing<'t> {
    target: &'t dyn Import,
    left: AtomicU64,
    after: bool,
}

impl<'t> Failing<'t> {
    pub(crate) fn new(target: &'t dyn Import, turns: u64, after: bool) -> Self {
        Self { target, left: AtomicU64::new(turns), after }
    }

    fn is_killed(&self) -> bool {
        self.left.fetch_sub(1, Ordering::Relaxed) == 0
    }

    async fn around<T: Send>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let killed = || Err(StoreError::new(ErrorKind::Stop, "SB9999", "killed"));
        match (self.is_killed(), self.after) {
            (false, _) => work.await,
            (true, false) => killed(),
            (true, true) => work.await.and_then(|_| killed()),
        }
    }
}

#[async_trait]
impl Export for Failing<'_> {
    async fn identity(&self) -> Result<Identity, StoreError> {
        self.target.identity().await
    }

    async fn export(&self, after: &Cursor, size: PageSize) -> Result<RecordPage, StoreError> {
        self.target.export(after, size).await
    }
}

#[async_trait]
impl Import for Failing<'_> {
    async fn begin(&self, source: &Identity) -> Result<Progress, StoreError> {
        self.around(self.target.begin(source)).await
    }

    async fn import(&self, records: Vec<Record>, progress: &Progress) -> Result<(), StoreError> {
        self.around(self.target.import(records, progress)).await
    }

    async fn arrange(&self, progress: &Progress) -> Result<Progress, StoreError> {
        self.around(self.target.arrange(progress)).await
    }

    async fn complete(&self, progress: &Progress) -> Result<(), StoreError> {
        self.around(self.target.complete(progress)).await
    }
}

#[tokio::test]
async fn a_copy_of_a_file_equals_it_and_lives_on_like_it() {
    let files = Files::new();
    let picture = files.filled("a.db").await;
    let (source, target) = (files.source("a.db"), files.target("b.db"));
    let copied = copied(&source, &target, SMALL).await.unwrap();
    assert!(!copied.resumed);
    assert_eq!((copied.damaged, copied.records[&RecordKind::Queue]), (0, 10));
    assert_same(&records(&source).await, &records(&target).await);
    drop((source, target));
    let now = sickbay_core::Clock::now(&files.clock);
    let mut lives = Vec::new();
    for name in ["b.db", "a.db"] {
        files.clock.set(now);
        let store = files.open(name);
        let hand = Hand { store: &store, clock: &files.clock };
        assert_same(&picture, &hand.picture().await);
        lives.push(hand.live_on().await);
    }
    assert_same(&lives[1], &lives[0]);
}

#[tokio::test]
async fn a_copy_that_is_killed_at_any_transaction_goes_on_where_it_stopped() {
    let files = Files::new();
    files.filled("a.db").await;
    let source = files.source("a.db");
    let expected = records(&source).await;
    let size = PageSize { rows_max: 20, bytes_max: 20_000 };
    let mut turn = 0;
    loop {
        for after in [false, true] {
            let name = format!("b-{turn}-{after}.db");
            let target = files.target(&name);
            let failing = Failing::new(&target, turn, after);
            if let Ok(whole) = copied(&source, &failing, size).await {
                assert!(turn > 10 && !whole.resumed, "every transaction was killed once");
                return;
            }
            drop(target);
            if turn > 0 {
                let refused = SqliteStore::open(files.path(&name), files.options()).map(drop);
                let complete = refused.as_ref().map_or_else(StoreError::code, |()| "opened");
                assert!(complete == "SB0071" || after, "{complete}");
            }
            let target = files.target(&name);
            match copied(&source, &target, SMALL).await {
                Ok(copied) => assert_eq!(copied.resumed, turn > 1 || turn == 1 && after),
                // It was killed after it was complete.
                Err(error) => assert_eq!((error.code(), after), ("SB0070", true), "{error}"),
            }
            assert_same(&expected, &records(&target).await);
        }
        turn += 1;
    }
}

#[tokio::test]
async fn what_a_dead_owner_held_comes_back_before_the_copy() {
    let files = Files::new();
    files.filled("a.db").await;
    let store = files.open("a.db");
    let hand = Hand { store: &store, clock: &files.clock };
    assert_eq!(hand.claim_as("plain", 3, ProcessId(5)).await.len(), 3);
    store.crash();
    drop(store);
    let (source, target) = (files.source("a.db"), files.target("b.db"));
    copied(&source, &target, SMALL).await.unwrap();
    assert_same(&records(&source).await, &records(&target).await);
}

#[tokio::test]
async fn no_token_of_the_source_counts_in_the_copy_and_no_number_is_given_again() {
    let files = Files::new();
    files.filled("a.db").await;
    // The last message is gone before the copy.
    let store = files.open("a.db");
    let last = store.push(vec![NewMessage::new(queue("plain"), "last")]).await.unwrap()[0].id();
    store.cancel(vec![last]).await.unwrap();
    drop(store);
    let (source, target) = (files.source("a.db"), files.target("b.db"));
    let epoch = source.identity().await.unwrap().marks.epoch;
    copied(&source, &target, PageSize::default()).await.unwrap();
    drop((source, target));
    let store = files.open("b.db");
    let hand = Hand { store: &store, clock: &files.clock };
    let delivery = hand.claim("plain", 1).await.remove(0);
    assert!(delivery.token().epoch > epoch);
    let next = store.push(vec![NewMessage::new(queue("plain"), "next")]).await.unwrap()[0].id();
    assert_eq!(next.number(), last.number() + 1);
}

#[tokio::test]
async fn bytes_that_are_damaged_are_named_and_stay_known_to_be_damaged() {
    let files = Files::new();
    let store = files.open("a.db");
    let hand = Hand { store: &store, clock: &files.clock };
    hand.fill().await;
    drop(store);
    let damaged = [65, 66].map(|number| MessageId::from_number(number).unwrap());
    let connection = rusqlite::Connection::open(files.path("a.db")).unwrap();
    for id in damaged {
        let sql =
            "UPDATE message SET payload = CAST(payload || 'x' AS BLOB) WHERE place & ((1 << 40) - 1) = ?1";
        assert_eq!(connection.execute(sql, [id.number() as i64]), Ok(1), "{id:?}");
    }
    drop(connection);
    let (source, target) = (files.source("a.db"), files.target("b.db"));
    let copied = copied(&source, &target, SMALL).await.unwrap();
    assert_eq!((copied.damaged, copied.damaged_ids.as_slice()), (2, &damaged[..]));
    drop((source, target));
    let store = files.open("b.db");
    let hand = Hand { store: &store, clock: &files.clock };
    while let Some(delivery) = hand.claim_as("plain", 1, ProcessId(6)).await.pop() {
        assert!(!damaged.contains(&delivery.message.id), "nobody gets to see damaged bytes");
    }
}

#[tokio::test]
async fn a_target_that_holds_anything_is_refused_and_left_alone() {
    let files = Files::new();
    files.filled("a.db").await;
    let store = files.open("b.db");
    store.define_queue_for_test().await;
    drop(store);
    let (source, target) = (files.source("a.db"), files.target("b.db"));
    let before = records(&target).await;
    let error = copied(&source, &target, SMALL).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), ("SB0070", ErrorKind::Conflict));
    assert_same(&before, &records(&target).await);
    drop(target);
    let target = files.target("c.db");
    copied(&source, &target, SMALL).await.unwrap();
    let error = copied(&source, &target, SMALL).await.unwrap_err();
    assert!(error.to_string().contains("complete copy of this source already"), "{error}");
}

#[tokio::test]
async fn a_copy_that_was_begun_is_finished_from_the_same_unchanged_source_only() {
    let files = Files::new();
    files.filled("a.db").await;
    files.filled("other.db").await;
    let target = files.target("b.db");
    {
        let source = files.source("a.db");
        let killed = copied(&source, &Failing::new(&target, 5, false), SMALL).await;
        assert_eq!(killed.unwrap_err().code(), "SB9999");
        let error = copied(&files.source("other.db"), &target, SMALL).await.unwrap_err();
        assert_eq!(error.code(), "SB0071");
    }
    let store = files.open("a.db");
    store.push(vec![NewMessage::new(queue("plain"), "one more")]).await.unwrap();
    drop(store);
    let error = copied(&files.source("a.db"), &target, SMALL).await.unwrap_err();
    assert_eq!(error.code(), "SB0071");
    assert!(error.to_string().contains("delete"), "{error}");
    drop(target);
    let unfinished = SqliteAtRest::open_source(files.path("b.db"), &files.options()).map(drop);
    assert_eq!(unfinished.unwrap_err().code(), "SB0071", "half a store is no source");
}

#[tokio::test]
async fn what_was_changed_behind_the_copy_is_found_when_both_are_compared() {
    let files = Files::new();
    files.filled("a.db").await;
    let source = files.source("a.db");
    for (number, sql) in [
        "UPDATE dead SET no = 999 WHERE no = 1",
        "UPDATE waiting SET failures = failures + 1 WHERE failures > 0",
        "DELETE FROM origin WHERE number = (SELECT max(number) FROM origin)",
        "UPDATE key SET state = 0 WHERE state = 2",
        "UPDATE queue SET paused = 1 - paused",
        "UPDATE trace SET text = text || 'x'",
        "DELETE FROM hold",
        "UPDATE completed SET expires_at = expires_at + 1",
        "DELETE FROM original",
        "DELETE FROM type_gate",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("b{number}.db");
        let target = files.target(&name);
        let copying = Interrupted { target: &target, path: files.path(&name), sql };
        let error = copied(&source, &copying, PageSize::default()).await.unwrap_err();
        assert_eq!(error.code(), "SB0073", "{sql}: {error}");
        drop(target);
        assert!(SqliteStore::open(files.path(&name), files.options()).is_err(), "it is not complete");
    }
}

/// A target that somebody changes when all records are in it.
struct Interrupted<'t> {
    target: &'t SqliteAtRest,
    path: PathBuf,
    sql: &'static str,
}

#[async_trait]
impl Export for Interrupted<'_> {
    async fn identity(&self) -> Result<Identity, StoreError> {
        self.target.identity().await
    }

    async fn export(&self, after: &Cursor, size: PageSize) -> Result<RecordPage, StoreError> {
        self.target.export(after, size).await
    }
}

#[async_trait]
impl Import for Interrupted<'_> {
    async fn begin(&self, source: &Identity) -> Result<Progress, StoreError> {
        self.target.begin(source).await
    }

    async fn import(&self, records: Vec<Record>, progress: &Progress) -> Result<(), StoreError> {
        self.target.import(records, progress).await
    }

    async fn arrange(&self, progress: &Progress) -> Result<Progress, StoreError> {
        let turned = self.target.arrange(progress).await?;
        if turned.step == CopyStep::Verify {
            let connection = rusqlite::Connection::open(&self.path).unwrap();
            assert!(connection.execute(self.sql, []).unwrap() > 0, "{}", self.sql);
        }
        Ok(turned)
    }

    async fn complete(&self, progress: &Progress) -> Result<(), StoreError> {
        self.target.complete(progress).await
    }
}

/// A source that somebody uses once all has been read.
struct Used<'s> {
    source: &'s SqliteAtRest,
    asked: AtomicU64,
}

#[async_trait]
impl Export for Used<'_> {
    async fn identity(&self) -> Result<Identity, StoreError> {
        let mut identity = self.source.identity().await?;
        identity.moved += self.asked.fetch_add(1, Ordering::Relaxed) as i64;
        Ok(identity)
    }

    async fn export(&self, after: &Cursor, size: PageSize) -> Result<RecordPage, StoreError> {
        self.source.export(after, size).await
    }
}

#[tokio::test]
async fn a_copy_of_a_source_that_was_used_meanwhile_is_not_complete() {
    let files = Files::new();
    files.filled("a.db").await;
    let (source, target) = (files.source("a.db"), files.target("b.db"));
    let used = Used { source: &source, asked: AtomicU64::new(0) };
    let error = copied(&used, &target, PageSize::default()).await.unwrap_err();
    assert_eq!(error.code(), "SB0073", "{error}");
    assert!(error.to_string().contains("the source was changed while it was copied"), "{error}");
    drop(target);
    assert!(SqliteStore::open(files.path("b.db"), files.options()).is_err(), "it is not complete");
}

#[tokio::test]
async fn a_source_that_is_not_there_or_is_owned_is_refused() {
    let files = Files::new();
    let missing = SqliteAtRest::open_source(files.path("none.db"), &files.options()).map(drop);
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!files.path("none.db").exists(), "nothing is made");
    let store = files.open("a.db");
    let owned = SqliteAtRest::open_source(files.path("a.db"), &files.options()).map(drop);
    assert_eq!(owned.unwrap_err().code(), "SB0009");
    drop(store);
}

/// Something in a store that was empty.
#[async_trait]
trait DefineForTest {
    async fn define_queue_for_test(&self);
}

#[async_trait]
impl<S: Store> DefineForTest for S {
    async fn define_queue_for_test(&self) {
        self.define_queue(&queue("q"), QueuePolicy::default()).await.unwrap();
    }
}
