//! Files that are lost, damaged, replaced or older than they should be: it is noticed, and nothing is made worse.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sickbay_core::port::{Desk, Overview, Pusher};
use sickbay_core::quarantine::{PageRequest, QuarantineFilter};
use sickbay_core::{ErrorKind, Key, MessageId, NewMessage, QueueName, QueuePolicy, StoreError};
use sickbay_store::{SqliteOptions, SqliteStore};
use sickbay_testkit::ManualClock;
use tempfile::TempDir;

fn options() -> SqliteOptions {
    SqliteOptions::new(Arc::new(ManualClock::new())).log_bytes(0)
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn push(store: &SqliteStore, count: usize) -> Result<Vec<u64>, StoreError> {
    let messages = (0..count).map(|n| NewMessage::new(queue(), format!("message {n}"))).collect();
    Ok(block_on(store.push(messages))?.iter().map(|pushed| pushed.id().number()).collect())
}

/// A store with ten messages, closed, so that they are in its file and not in its log.
fn with_ten(folder: &Path) -> PathBuf {
    let path = folder.join("store.db");
    let store = SqliteStore::open(&path, options()).unwrap();
    block_on(store.define_queue(&queue(), QueuePolicy::default())).unwrap();
    push(&store, 10).unwrap();
    path
}

/// What a killed process leaves: the files as they are while the store is open.
fn killed(path: &Path, to: &Path) -> PathBuf {
    for beside in ["", "-wal", "-mark", "-sums"] {
        let name = format!("store.db{beside}");
        std::fs::copy(path.with_file_name(&name), to.join(&name)).unwrap();
    }
    to.join("store.db")
}

/// Ten messages in the file and five in the log of a process that was killed.
fn ten_and_five(folder: &Path, to: &Path) -> PathBuf {
    let path = with_ten(folder);
    let store = SqliteStore::open(&path, options()).unwrap();
    push(&store, 5).unwrap();
    killed(&path, to)
}

fn refusal(path: &Path) -> StoreError {
    SqliteStore::open(path, options()).map(drop).expect_err("it must be refused")
}

fn beside(path: &Path, what: &str) -> PathBuf {
    path.with_file_name(format!("store.db{what}"))
}

#[test]
fn what_a_killed_process_leaves_is_whole() {
    let (folder, left) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = ten_and_five(folder.path(), left.path());
    let store = SqliteStore::open(&path, options()).unwrap();
    assert_eq!(block_on(store.stats(&queue())).unwrap().pending, 15);
    assert_eq!((store.lost(), push(&store, 1).unwrap()), (None, vec![16]));
}

#[test]
fn a_log_that_vanished_is_noticed_and_the_messages_lost_with_it_are_named() {
    let (folder, left) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = ten_and_five(folder.path(), left.path());
    std::fs::remove_file(beside(&path, "-wal")).unwrap();
    let error = refusal(&path);
    assert_eq!((error.kind(), error.code()), (ErrorKind::Corrupt, "SB0016"));
    assert!(error.to_string().contains("messages number 11 to 15 are gone"), "{error}");
}

#[test]
fn a_log_with_one_turned_bit_is_noticed_and_left_as_it_was() {
    let (folder, left) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = ten_and_five(folder.path(), left.path());
    let log = beside(&path, "-wal");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[32 + 24 + 100] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    assert_eq!(refusal(&path).code(), "SB0016");
    assert_eq!(
        std::fs::read(&log).unwrap(),
        bytes,
        "whoever looks for the lost messages finds what there was"
    );
    // The bit turned back, everything is there.
    bytes[32 + 24 + 100] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let store = SqliteStore::open(&path, options()).unwrap();
    assert_eq!(block_on(store.stats(&queue())).unwrap().pending, 15);
}

#[test]
fn an_older_copy_in_the_stores_place_is_noticed() {
    let folder = TempDir::new().unwrap();
    let path = with_ten(folder.path());
    let copy = folder.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    let store = SqliteStore::open(&path, options()).unwrap();
    push(&store, 3).unwrap();
    drop(store);
    std::fs::copy(&copy, &path).unwrap();
    let error = refusal(&path);
    assert_eq!(error.code(), "SB0016");
    assert!(error.to_string().contains("messages number 11 to 13 are gone"), "{error}");
}

#[test]
fn a_file_that_was_deleted_is_not_silently_made_anew() {
    let folder = TempDir::new().unwrap();
    let path = with_ten(folder.path());
    std::fs::remove_file(&path).unwrap();
    assert!(refusal(&path).to_string().contains("messages number 1 to 10 are gone"));
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(beside(&path, "-mark")).unwrap();
    assert!(SqliteStore::open(&path, options()).is_ok(), "without its mark it is a new store");
}

#[test]
fn a_store_opened_in_spite_of_its_loss_gives_no_number_again_and_is_whole_from_then_on() {
    let (folder, left) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = ten_and_five(folder.path(), left.path());
    std::fs::remove_file(beside(&path, "-wal")).unwrap();
    let store = SqliteStore::open(&path, options().accept_loss()).unwrap();
    assert_eq!(store.lost().unwrap().messages, Some((11, 15)));
    assert_eq!(push(&store, 1).unwrap(), [16]);
    drop(store);
    let store = SqliteStore::open(&path, options()).unwrap();
    assert_eq!((store.lost(), block_on(store.stats(&queue())).unwrap().pending), (None, 11));
}

#[test]
fn another_stores_file_is_refused() {
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (one, two) = (with_ten(one.path()), with_ten(two.path()));
    std::fs::copy(&two, &one).unwrap();
    let error = refusal(&one);
    assert_eq!(error.code(), "SB0016");
    assert!(error.to_string().contains("another store"), "{error}");
}

/// A running store with ten messages, and what puts a copy in the place of its file.
#[cfg(unix)]
fn beside_a_copy(folder: &Path, clock: &ManualClock) -> (SqliteStore, impl FnOnce() + use<>) {
    let path = with_ten(folder);
    let copy = folder.join("copy");
    std::fs::copy(&path, &copy).unwrap();
    let store = SqliteStore::open(&path, SqliteOptions::new(Arc::new(clock.clone())).log_bytes(0)).unwrap();
    (store, move || std::fs::rename(&copy, &path).unwrap())
}

#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_under_a_running_store_is_noticed_within_a_second() {
    let folder = TempDir::new().unwrap();
    let clock = ManualClock::new();
    let (store, replace) = beside_a_copy(folder.path(), &clock);
    push(&store, 1).unwrap();
    replace();
    clock.advance(Duration::from_secs(1));
    for _ in 0..2 {
        let error = push(&store, 1).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Stop, "SB0019"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn a_store_that_cannot_go_on_does_nothing_by_itself() {
    let folder = TempDir::new().unwrap();
    let clock = ManualClock::new();
    let (store, replace) = beside_a_copy(folder.path(), &clock);
    // The second leaves something to be done later.
    push(&store, 1).unwrap();
    push(&store, 1).unwrap();
    replace();
    clock.advance(Duration::from_secs(2));
    assert_eq!(push(&store, 1).unwrap_err().code(), "SB0019");
    let before = clock.reads();
    for _ in 0..100 {
        drop(block_on(store.stats(&queue())));
    }
    let more = clock.reads() - before;
    assert!(more <= 300, "the clock was read {more} times");
}

/// Turns a bit over as a disk does: nobody has written the file.
fn turn_bit(path: &Path, at: u64) {
    use std::io::{Read, Seek, SeekFrom, Write};
    let changed = std::fs::metadata(path).unwrap().modified().unwrap();
    let mut file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&[byte[0] ^ 4]).unwrap();
    file.set_modified(changed).unwrap();
}

#[test]
fn every_page_that_changed_by_itself_is_noticed_when_it_is_read() {
    let folder = TempDir::new().unwrap();
    let path = with_ten(folder.path());
    let pages = std::fs::metadata(&path).unwrap().len() / 4096;
    let mut noticed = 0;
    for page in 0..pages {
        let at = page * 4096 + 4000;
        turn_bit(&path, at);
        let opened = SqliteStore::open(&path, options());
        let seen = opened.and_then(|store| block_on(store.stats(&queue())));
        match seen {
            Err(error) => {
                assert!(["SB0012", "SB0007"].contains(&error.code()), "page {page}: {error}");
                noticed += 1;
            }
            Ok(stats) => assert_eq!(stats.pending, 10, "page {page}"),
        }
        turn_bit(&path, at);
    }
    assert!(noticed > pages / 3, "{noticed} of {pages}");
}

#[test]
fn a_shell_that_writes_the_log_back_is_no_damage() {
    let (folder, left) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = ten_and_five(folder.path(), left.path());
    let shell = rusqlite::Connection::open(&path).unwrap();
    shell.execute_batch("CREATE TABLE notes (text); INSERT INTO notes VALUES ('x'); VACUUM").unwrap();
    drop(shell);
    let store = SqliteStore::open(&path, options()).unwrap();
    assert_eq!(block_on(store.stats(&queue())).unwrap().pending, 15);
}

/// The steps of the schema and the hash of each.
const STEPS: [(&str, u64); 3] = [
    (include_str!("../../src/sqlite/schema.sql"), 0x67dd_09ed_396a_04a3),
    (include_str!("../../src/sqlite/schema-2.sql"), 0x2111_f762_c73e_7dd0),
    (include_str!("../../src/sqlite/schema-3.sql"), 0xec1a_52a6_4cba_3fc4),
];

#[test]
fn a_released_step_of_the_schema_is_never_edited() {
    for (at, (text, hash)) in STEPS.iter().enumerate() {
        let found = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
        assert_eq!(
            found,
            *hash,
            "step {} was changed to {found:#018x}: files with it are out there, so a released step is never edited; add a new one",
            at + 1
        );
    }
}

/// A file of this version, with messages in it.
fn of_version(version: usize, path: &Path) {
    let old = rusqlite::Connection::open(path).unwrap();
    let (first, later) = (STEPS[0].0, STEPS[1..version].iter().map(|(text, _)| *text));
    old.execute_batch(first).unwrap();
    old.execute_batch(include_str!("version-1.sql")).unwrap();
    later.for_each(|step| old.execute_batch(step).unwrap());
    let marks = format!("PRAGMA application_id = 0x5349434B; PRAGMA user_version = {version}");
    old.execute_batch(&marks).unwrap();
}

/// All that can be seen of the messages of a store.
fn seen(store: &SqliteStore) -> Vec<String> {
    let mut seen = vec![format!("{:?}", block_on(store.stats(&queue())).unwrap())];
    for number in 1..=6 {
        let id = MessageId::from_number(number).unwrap();
        seen.push(format!("{:?}", block_on(store.find(id.to_string().parse().unwrap())).unwrap()));
    }
    let dead = block_on(store.quarantine(&QuarantineFilter::default(), PageRequest::default())).unwrap();
    seen.push(format!("{:?}", dead.rows));
    seen
}

#[test]
fn a_file_of_an_earlier_version_is_brought_to_this_one_with_all_that_it_holds() {
    let open = |version| {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store.db");
        of_version(version, &path);
        (SqliteStore::open(&path, options()).unwrap(), folder)
    };
    let expected = seen(&open(STEPS.len()).0);
    for version in 1..=STEPS.len() {
        let (store, _folder) = open(version);
        let stats = block_on(store.stats(&queue())).unwrap();
        assert!(stats.adds_up(), "of version {version}: {stats:?}");
        let counts = [stats.pending, stats.failed, stats.scheduled, stats.dead, stats.completed];
        assert_eq!(counts, [2, 1, 1, 1, 1], "of version {version}");
        assert_eq!(seen(&store), expected, "of version {version}");
        // Keys are known, and the numbers go on.
        let keyed = |key: &str| NewMessage::new(queue(), "again").key(Key::new(key).unwrap());
        let pushed = block_on(store.push(vec![keyed("waiting"), keyed("done"), keyed("dead")])).unwrap();
        let numbers: Vec<u64> = pushed.iter().map(|one| one.id().number()).collect();
        assert_eq!(numbers, [5, 3, 7], "of version {version}");
    }
}
