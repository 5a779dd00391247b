//! What the SQLite store does though nobody asks.

use std::sync::Arc;
use std::time::Duration;

use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, Overview, Pusher};
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    Clock, ErrorKind, MessageType, NewMessage, QueueName, QueuePolicy, Timestamp, WorkerName,
};
use sickbay_faults::disk::{Disk, Failing, Fault, Op};
use sickbay_faults::fixture::{options, options_on};
use sickbay_faults::vfs::Drive;
use sickbay_store::SqliteStore;
use sickbay_testkit::ManualClock;

use crate::with_drive;

/// A clock that wakes nobody: who waits for a time asks again and again.
struct Asked(ManualClock);

impl Clock for Asked {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn wait_for(&self, _: Timestamp) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn on_tick(&self, _: Arc<dyn Fn() -> bool + Send + Sync>) {}
}

/// What was written to the mark is durable.
fn mark_is_synced(disk: &Disk) -> bool {
    let image = disk.image();
    let mark = image.names.iter().find(|(name, _)| name.ends_with("-mark")).map(|(_, inode)| *inode);
    let of_mark = disk.recorded_so_far().into_iter().rev().find_map(|op| match op {
        Op::Write(inode, ..) if Some(inode) == mark => Some(false),
        Op::Sync(inode) if Some(inode) == mark => Some(true),
        _ => None,
    });
    of_mark == Some(true)
}

#[test]
fn the_mark_is_durable_a_second_after_the_last_commit_although_nothing_follows() {
    with_drive(|drive| {
        let disk = Disk::default();
        disk.record();
        drive.insert(disk.clone());
        let clock = ManualClock::new();
        let asked = Arc::new(Asked(clock.clone()));
        let store = SqliteStore::open("store.db", options_on(drive, asked)).unwrap();
        let runtime = sickbay_faults::runtime();
        let queue = QueueName::new("q").unwrap();
        runtime.block_on(store.define_queue(&queue, QueuePolicy::default())).unwrap();
        runtime.block_on(store.push(vec![NewMessage::new(queue.clone(), "the last one")])).unwrap();
        assert!(!mark_is_synced(&disk), "the sync of the first commit was a moment ago");
        clock.advance(Duration::from_millis(1000));
        // The writer does it by itself, while others only read.
        let read = |_: &usize| drop(runtime.block_on(store.stats(&queue)).unwrap());
        let synced = (0..50_000usize).inspect(read).any(|_| mark_is_synced(&disk));
        assert!(synced, "the mark is not synced");
    });
}

#[test]
fn a_store_whose_disk_fails_tells_those_that_wait_and_does_not_try_again_all_the_time() {
    for how in [Failing::Full, Failing::Broken] {
        with_drive(|drive| sickbay_faults::runtime().block_on(fail_under_a_waiting_claim(drive, how)));
    }
}

/// A store with the queue `q` on a disk of its own.
async fn open(drive: &Arc<Drive>) -> (Disk, ManualClock, SqliteStore, QueueName) {
    let (disk, clock) = (Disk::default(), ManualClock::new());
    drive.insert(disk.clone());
    let store = SqliteStore::open("store.db", options(drive, &clock)).unwrap();
    let queue = QueueName::new("q").unwrap();
    store.define_queue(&queue, QueuePolicy::default()).await.unwrap();
    (disk, clock, store, queue)
}

fn claim(store: &SqliteStore, wait: Duration) -> Claim {
    let (queue, worker) = (QueueName::new("q").unwrap(), WorkerName::new("w").unwrap());
    Claim { queue, worker, process: store.process(), max: 1, wait, lease: Duration::from_secs(10) }
}

/// The store does nothing while others only read. Whatever it does, it looks at its clock first.
async fn assert_idle(store: &SqliteStore, queue: &QueueName, clock: &ManualClock) {
    let before = clock.reads();
    for _ in 0..200 {
        drop(store.stats(queue).await);
    }
    let more = clock.reads() - before;
    assert!(more <= 205, "who reads looks once; the clock was read {more} times");
}

async fn fail_under_a_waiting_claim(drive: &Arc<Drive>, how: Failing) {
    let (disk, clock, store, queue) = open(drive).await;
    let later = NewMessage::new(queue.clone(), "later").delay(Duration::from_secs(20));
    store.push(vec![NewMessage::new(queue.clone(), "now"), later]).await.unwrap();
    let take = |wait| store.exchange(Exchange::claim(claim(&store, wait)));
    assert_eq!(take(Duration::ZERO).await.unwrap().deliveries.len(), 1);
    let fail = async {
        disk.fail(Fault { at: 0, count: u64::MAX, how });
        // The lease has ended, a message is due, and the time of the claim is over: nothing of it can be written.
        clock.advance(Duration::from_secs(21));
        while disk.hits() == 0 {
            drop(store.stats(&queue).await);
        }
    };
    let (waited, ()) = tokio::join!(take(Duration::from_secs(20)), fail);
    let kind = waited.unwrap_err().kind();
    assert_eq!(kind, if how == Failing::Full { ErrorKind::Full } else { ErrorKind::Stop });
    assert_idle(&store, &queue, &clock).await;
    disk.heal();
    clock.advance(Duration::from_secs(3600));
    for _ in 0..2 {
        assert_eq!(take(Duration::ZERO).await.unwrap().deliveries.len(), 1, "it goes on by itself");
    }
}

#[test]
fn a_store_whose_disk_is_full_does_not_try_all_the_time_to_let_a_type_through() {
    const COUNT: usize = 12_000;
    with_drive(|drive| {
        sickbay_faults::runtime().block_on(async {
            let (disk, clock, store, queue) = open(drive).await;
            let of_type = MessageType::new("t").unwrap();
            store.set_type_gate(&queue, &of_type, TypeGate::Paused).await.unwrap();
            let message = || NewMessage::new(queue.clone(), "x").message_type(of_type.clone());
            store.push((0..COUNT).map(|_| message()).collect()).await.unwrap();
            // A claim passes over a thousand.
            for _ in 0..=COUNT / 1000 {
                let claim = Exchange::claim(claim(&store, Duration::ZERO));
                assert!(store.exchange(claim).await.unwrap().deliveries.is_empty());
            }
            // They come back a part at a time; most parts meet a full disk.
            store.set_type_gate(&queue, &of_type, TypeGate::Open).await.unwrap();
            disk.fail(Fault { at: 0, count: u64::MAX, how: Failing::Full });
            assert_eq!(store.push(vec![message()]).await.unwrap_err().kind(), ErrorKind::Full);
            assert_idle(&store, &queue, &clock).await;
            disk.heal();
        });
    });
}
