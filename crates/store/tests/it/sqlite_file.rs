//! The file itself: who may open it, and what happens when it cannot be written.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, Overview, Pusher};
use sickbay_core::{ErrorKind, NewMessage, QueueName, QueuePolicy, Settlement, StoreError, WorkerName};
use sickbay_store::{SqliteOptions, SqliteStore};
use sickbay_testkit::ManualClock;
use tempfile::TempDir;

fn options() -> SqliteOptions {
    SqliteOptions::new(Arc::new(ManualClock::new())).log_bytes(0)
}

fn refusal(path: &Path) -> StoreError {
    SqliteStore::open(path, options()).map(drop).expect_err("it must be refused")
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

fn claim(store: &SqliteStore, max: u32) -> Claim {
    let worker = WorkerName::new("w").unwrap();
    let lease = Duration::from_secs(30);
    Claim { queue: queue(), worker, process: store.process(), max, wait: Duration::ZERO, lease }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn a_second_owner_is_refused_and_told_who_has_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let first = SqliteStore::open(&path, options()).unwrap();
    let error = refusal(&path);
    assert_eq!((error.kind(), error.code()), (ErrorKind::TryAgain, "SB0009"));
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    drop(first);
    assert!(SqliteStore::open(&path, options()).is_ok(), "the lock goes with its owner");
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("notes.txt");
    let text = "this is a long text and not a database at all. ".repeat(100);
    std::fs::write(&path, &text).unwrap();
    assert_eq!(refusal(&path).code(), "SB0007");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_database_of_another_program_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("other.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").unwrap();
    let error = refusal(&path);
    assert_eq!(error.code(), "SB0007");
    assert!(error.to_string().contains("another program"), "{error}");
    let tables: i64 = other.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1);
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    drop(SqliteStore::open(&path, options()).unwrap());
    rusqlite::Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    // What does not exist is as good as empty. The sums are taken anew because a shell has written the file; the scene of
    // an old and a new program on one file sees that they, too, stay as a newer program left them.
    let read = |name: &str| std::fs::read(format!("{}{name}", path.display())).unwrap_or_default();
    let names = ["", "-wal", "-mark"];
    let before = names.map(read);
    let error = refusal(&path);
    assert_eq!(error.code(), "SB0008");
    assert!(error.to_string().contains("schema 99"), "{error}");
    let changed = names.iter().zip(before).filter(|(name, before)| read(name) != *before);
    let changed: Vec<&str> = changed.map(|(name, _)| *name).collect();
    assert_eq!(changed, Vec::<&str>::new(), "not a byte of it is changed");
}

#[cfg(unix)]
#[test]
fn a_folder_that_is_not_there_or_a_folder_as_a_file_is_a_clear_error() {
    let folder = TempDir::new().unwrap();
    for path in [folder.path().join("no/such/store.db"), folder.path().to_owned()] {
        let error = refusal(&path);
        assert!(["SB0006", "SB0014"].contains(&error.code()), "{error}");
        assert!(!error.to_string().is_empty());
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_written_is_a_clear_error() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    drop(SqliteStore::open(&path, options()).unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    let opened = SqliteStore::open(&path, options()).map(drop);
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // Root may write everything; everybody else is refused.
    if let Err(error) = opened {
        assert_eq!((error.kind(), error.code()), (ErrorKind::Stop, "SB0006"), "{error}");
    }
}

#[test]
fn a_full_store_refuses_pushes_loses_nothing_and_goes_on_when_there_is_room() {
    let folder = TempDir::new().unwrap();
    let options = options().file_bytes_max(600 << 10);
    let store = SqliteStore::open(folder.path().join("store.db"), options).unwrap();
    block_on(async {
        store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
        let batch = || (0..10).map(|_| NewMessage::new(queue(), vec![7u8; 4000])).collect::<Vec<_>>();
        let mut stored = 0u64;
        let error = loop {
            match store.push(batch()).await {
                Ok(pushed) => stored += pushed.len() as u64,
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), error.code()), (ErrorKind::Full, "SB0005"), "{error}");
        let stats = store.stats(&queue()).await.unwrap();
        assert_eq!((stats.pushed, stats.pending), (stored, stored), "all of a batch or nothing");
        assert!(stats.adds_up());
        // What is there can be delivered and settled, and that makes room.
        let mut handled = 0;
        for _ in 0..3 {
            let got = store.exchange(Exchange::claim(claim(&store, 20))).await.unwrap().deliveries;
            handled += got.len() as u64;
            let done = got.iter().map(|delivery| Settlement::complete(delivery.token())).collect();
            store.exchange(Exchange::settle(done)).await.unwrap();
        }
        assert_eq!(store.push(batch()).await.unwrap().len(), 10, "it goes on by itself");
        let stats = store.stats(&queue()).await.unwrap();
        assert_eq!((stats.completed, stats.pending), (handled, stored + 10 - handled));
        assert!(stats.adds_up());
    });
}

#[test]
fn a_turn_that_fails_leaves_leases_and_claims_as_they_were() {
    let folder = TempDir::new().unwrap();
    let store =
        SqliteStore::open(folder.path().join("store.db"), options().file_bytes_max(600 << 10)).unwrap();
    block_on(async {
        store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
        let small = (0..4).map(|n| NewMessage::new(queue(), format!("small {n}"))).collect();
        store.push(small).await.unwrap();
        let held = store.exchange(Exchange::claim(claim(&store, 2))).await.unwrap().deliveries;
        while store.push(vec![NewMessage::new(queue(), vec![1u8; 40_000])]).await.is_ok() {}
        // The leases from before the failure are still good, and the next claim goes on where it was.
        let next = store.exchange(Exchange::claim(claim(&store, 1))).await.unwrap().deliveries;
        assert_eq!(next[0].message.payload, "small 2");
        let done = held.iter().chain(&next).map(|delivery| Settlement::complete(delivery.token())).collect();
        let settled = store.exchange(Exchange::settle(done)).await.unwrap().settled;
        assert!(settled.iter().all(|one| *one == sickbay_core::settlement::Settled::Applied), "{settled:?}");
        let stats = store.stats(&queue()).await.unwrap();
        assert_eq!((stats.completed, stats.active), (3, 0));
        assert!(stats.adds_up(), "{stats:?}");
    });
}

#[test]
fn readers_see_a_store_that_is_being_written() {
    let folder = TempDir::new().unwrap();
    let store = SqliteStore::open(folder.path().join("store.db"), options()).unwrap();
    block_on(async {
        store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
        for round in 1..=50u64 {
            let name = queue();
            let push = store.push((0..20).map(|_| NewMessage::new(queue(), "x")).collect());
            let (pushed, stats) = tokio::join!(push, store.stats(&name));
            pushed.unwrap();
            let stats = stats.unwrap();
            assert!(stats.adds_up() && stats.pushed % 20 == 0 && stats.pushed <= round * 20, "{stats:?}");
        }
    });
}
