//! Many orders of what callers, the writer, the clock and a stop do, by shuttle, on the real writer and a real file:
//! `cargo test -p sickbay-store --lib --features interleavings interleavings`.
//!
//! Whoever waits for an answer that never comes ends a test as a deadlock.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use shuttle::future::block_on;
use shuttle::scheduler::RandomScheduler;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;
use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, Exchanged, Pusher};
use sickbay_core::{
    Clock, ErrorKind, NewMessage, QueueName, QueuePolicy, Settlement, StoreError, Timestamp, WorkerName,
};
use sickbay_testkit::ManualClock;

use super::place::Place;
use super::{SqliteOptions, SqliteStore};

/// Orders tried for each test.
const ORDERS: usize = 500;
/// SQLite wants more of a stack than threads get here.
const STACK_BYTES: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(30 * 24 * 3600);

fn in_many_orders(test: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    shuttle::Runner::new(RandomScheduler::new(ORDERS), config).run(test);
}

/// A manual clock; others may go on whenever somebody looks at it.
#[derive(Clone)]
struct SharedClock(ManualClock);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        thread::yield_now();
        self.0.now()
    }

    fn wait_for(&self, until: Timestamp) -> Option<Duration> {
        self.0.wait_for(until)
    }

    fn on_tick(&self, tick: Arc<dyn Fn() -> bool + Send + Sync>) {
        self.0.on_tick(tick);
    }
}

/// A folder with a store in it, in memory where that can be had.
struct Scene {
    folder: tempfile::TempDir,
    clock: ManualClock,
}

impl Scene {
    fn new() -> Arc<Self> {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Arc::new(Self { folder: folder.unwrap(), clock: ManualClock::new() })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    fn open(&self) -> SqliteStore {
        let clock = Arc::new(SharedClock(self.clock.clone()));
        let store = SqliteStore::open(self.path(), SqliteOptions::new(clock).log_bytes(0)).unwrap();
        block_on(store.define_queue(&queue(), QueuePolicy::default())).unwrap();
        store
    }

    /// The numbers of all messages that are committed, seen from outside.
    fn committed(&self) -> BTreeSet<u64> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.path(), flags).unwrap();
        let mut statement = connection.prepare("SELECT place FROM message").unwrap();
        let places = statement.query_map([], |row| row.get(0)).unwrap();
        places.map(|place| Place(place.unwrap()).number()).collect()
    }
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

/// Pushes one message; its number.
fn push(store: &SqliteStore) -> Result<u64, StoreError> {
    let pushed = block_on(store.push(vec![NewMessage::new(queue(), "x")]))?;
    Ok(pushed[0].id().number())
}

fn claim(store: &SqliteStore, wait: Duration) -> Exchange {
    let worker = WorkerName::new("w").unwrap();
    let claim = Claim { queue: queue(), worker, process: store.process(), max: 1, wait, lease: LONG };
    Exchange::claim(claim)
}

fn numbers(exchanged: &Exchanged) -> Vec<u64> {
    exchanged.deliveries.iter().map(|delivery| delivery.message.id.number()).collect()
}

/// Claims one message, waiting for so long.
fn take(store: &SqliteStore, wait: Duration) -> Result<Option<u64>, StoreError> {
    block_on(store.exchange(claim(store, wait))).map(|exchanged| numbers(&exchanged).first().copied())
}

/// Claims, and goes away after a while without looking whether there is an answer.
fn desert(store: &SqliteStore) {
    let mut waiting = store.exchange(claim(store, LONG));
    if let Poll::Ready(taken) = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        // It was quicker than anybody can run away.
        let back = taken.unwrap().deliveries.iter().map(|one| Settlement::release(one.token())).collect();
        block_on(store.exchange(Exchange::settle(back))).unwrap();
        return;
    }
    for _ in 0..shuttle::rand::Rng::gen_range(&mut shuttle::rand::thread_rng(), 0..20) {
        thread::yield_now();
    }
}

fn on_a_thread<T: Send + 'static>(
    store: &SqliteStore,
    act: impl FnOnce(&SqliteStore) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let store = store.clone();
    thread::spawn(move || act(&store))
}

#[test]
fn interleavings_of_callers_and_a_stop_answer_everyone_once_and_keep_exactly_what_was_answered() {
    in_many_orders(|| {
        let scene = Scene::new();
        let store = scene.open();
        let callers = [(); 3].map(|()| {
            let scene = scene.clone();
            on_a_thread(&store, move |store| {
                let pushed = push(store);
                if let Ok(number) = pushed {
                    assert!(scene.committed().contains(&number), "told before the commit");
                }
                pushed
            })
        });
        let waiting = on_a_thread(&store, |store| take(store, LONG));
        let tidily = shuttle::rand::Rng::gen_bool(&mut shuttle::rand::thread_rng(), 0.5);
        let stop = on_a_thread(&store, move |store| store.inner.stop(tidily));
        let mut acknowledged = BTreeSet::new();
        for caller in callers {
            match caller.join().unwrap() {
                Ok(number) => assert!(acknowledged.insert(number), "{number} was given twice"),
                Err(error) => assert_eq!(error.code(), "SB0013"),
            }
        }
        match waiting.join().unwrap() {
            Ok(taken) => assert!(taken.is_some_and(|number| acknowledged.contains(&number))),
            Err(error) => assert_eq!(error.code(), "SB0013"),
        }
        stop.join().unwrap();
        assert_eq!(push(&store).unwrap_err().code(), "SB0013");
        assert_eq!(scene.committed(), acknowledged);
    });
}

#[test]
fn interleavings_of_waiting_claims_and_pushes_lose_no_message_and_forget_no_claim() {
    in_many_orders(|| {
        let scene = Scene::new();
        let store = scene.open();
        let claims = [(); 2].map(|()| on_a_thread(&store, |store| take(store, LONG)));
        let pushes = [(); 2].map(|()| on_a_thread(&store, |store| push(store).unwrap()));
        let mut pushed: BTreeSet<u64> = pushes.map(|push| push.join().unwrap()).into();
        for claim in claims {
            let taken = claim.join().unwrap().unwrap().unwrap();
            assert!(pushed.remove(&taken), "{taken} was handed out twice or never pushed");
        }
    });
}

#[test]
fn interleavings_of_a_claim_whose_caller_goes_away_hand_its_message_to_the_next_that_waits() {
    in_many_orders(|| {
        let scene = Scene::new();
        let store = scene.open();
        let deserter = on_a_thread(&store, desert);
        let pushing = on_a_thread(&store, |store| push(store).unwrap());
        let taken = take(&store, LONG).unwrap();
        assert_eq!(taken, Some(pushing.join().unwrap()));
        deserter.join().unwrap();
    });
}

#[test]
fn interleavings_of_a_claim_whose_time_runs_out_and_a_push_hand_the_message_out_once_or_keep_it() {
    in_many_orders(|| {
        let scene = Scene::new();
        let store = scene.open();
        let claims = [(); 2].map(|()| on_a_thread(&store, |store| take(store, Duration::from_secs(5))));
        let pushing = on_a_thread(&store, |store| push(store).unwrap());
        let (clock, answered) = (scene.clock.clone(), Arc::new(AtomicU32::new(0)));
        let told = answered.clone();
        let ticking = thread::spawn(move || {
            while told.load(Ordering::SeqCst) < 2 {
                clock.advance(Duration::from_secs(3));
                thread::yield_now();
            }
        });
        let pushed = pushing.join().unwrap();
        let mut taken = Vec::new();
        for claim in claims {
            taken.extend(claim.join().unwrap().unwrap());
            answered.fetch_add(1, Ordering::SeqCst);
        }
        ticking.join().unwrap();
        match taken.as_slice() {
            [] => assert_eq!(take(&store, Duration::ZERO).unwrap(), Some(pushed)),
            taken => assert_eq!(taken, [pushed]),
        }
    });
}

#[test]
fn interleavings_of_callers_and_one_that_breaks_the_commit_keep_what_was_answered_and_nothing_else() {
    in_many_orders(|| {
        let scene = Scene::new();
        let store = scene.open();
        let waiting = [(); 2].map(|()| on_a_thread(&store, |store| take(store, LONG)));
        let callers = [(); 2].map(|()| on_a_thread(&store, push));
        let breaking = on_a_thread(&store, |store| {
            let broken = || StoreError::new(ErrorKind::Full, "SB0005", "the disk is full");
            block_on(store.call(move |tx| tx.begin().and_then(|()| Err::<(), _>(broken()))))
        });
        let mut there = BTreeSet::new();
        for caller in callers {
            match caller.join().unwrap() {
                Ok(number) => assert!(there.insert(number)),
                Err(error) => assert_eq!(error.code(), "SB0005"),
            }
        }
        assert_eq!(breaking.join().unwrap().unwrap_err().code(), "SB0005");
        while there.len() < 2 {
            assert!(there.insert(push(&store).unwrap()));
        }
        assert_eq!(scene.committed(), there);
        for waiting in waiting {
            // Who was about to get one when the commit failed was told so, and the message stayed.
            match waiting.join().unwrap() {
                Ok(taken) => assert!(there.remove(&taken.unwrap()), "{taken:?} was handed out twice"),
                Err(error) => assert_eq!(error.code(), "SB0005"),
            }
        }
        for left in there {
            assert_eq!(take(&store, LONG).unwrap(), Some(left));
        }
    });
}

#[test]
fn interleavings_of_callers_and_a_failure_for_good_refuse_everyone_and_write_nothing_more() {
    in_many_orders(|| {
        let scene = Scene::new();
        let store = scene.open();
        let waiting = on_a_thread(&store, |store| take(store, LONG));
        let callers = [(); 2].map(|()| on_a_thread(&store, push));
        let policies = store.inner.policies.clone();
        let error = StoreError::new(ErrorKind::Stop, "SB0019", "the file was replaced");
        let failing = thread::spawn(move || policies.fail(error));
        failing.join().unwrap();
        let before = scene.committed();
        let answers = callers.map(|caller| caller.join().unwrap());
        let acknowledged: BTreeSet<u64> = answers.iter().flatten().copied().collect();
        let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        assert!(refused.into_iter().all(|error| error.code() == "SB0019"));
        // One turn may have been under way.
        assert!(before.is_subset(&acknowledged));
        assert_eq!(push(&store).unwrap_err().code(), "SB0019");
        // Who waits is told with the next turn.
        scene.clock.advance(Duration::from_secs(1));
        match waiting.join().unwrap() {
            Ok(taken) => assert!(taken.is_some_and(|number| acknowledged.contains(&number))),
            Err(error) => assert_eq!(error.code(), "SB0019"),
        }
        assert_eq!(scene.committed(), acknowledged);
    });
}

#[test]
fn interleavings_of_settlements_and_renewals_never_bring_a_settled_lease_back() {
    in_many_orders(|| {
        let scene = Scene::new();
        let store = scene.open();
        push(&store).unwrap();
        let held = block_on(store.exchange(claim(&store, LONG))).unwrap().deliveries;
        let token = held[0].token();
        let settle = move |store: &SqliteStore| {
            let settled = block_on(store.exchange(Exchange::settle(vec![Settlement::complete(token)])));
            settled.unwrap().settled
        };
        let settling = [(); 2].map(|()| on_a_thread(&store, move |store| settle(store)));
        let renewing = on_a_thread(&store, move |store| {
            let renewal = sickbay_core::port::Renewal { tokens: vec![token], lease: LONG };
            block_on(store.renew(renewal)).unwrap()
        });
        let mut settled: Vec<String> = settling.map(|thread| format!("{:?}", thread.join().unwrap())).into();
        settled.sort();
        assert_eq!(settled, ["[Applied]", "[LeaseLost]"]);
        renewing.join().unwrap();
        let again = sickbay_core::port::Renewal { tokens: vec![token], lease: LONG };
        assert_eq!(block_on(store.renew(again)).unwrap(), [token]);
        assert_eq!(scene.committed(), BTreeSet::new());
    });
}
