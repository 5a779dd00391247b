//! Many orders of what handlers, the keeper and a stop do to the same deliveries, by shuttle:
//! `cargo test -p sickbay-worker --lib --features interleavings interleavings`.

mod whole;

use std::collections::BTreeMap;
use std::time::Duration;

use shuttle::sync::{Arc, Mutex};
use shuttle::{future, thread};
use sickbay_core::{Settlement, Timestamp};

use crate::flag::Flag;
use crate::hands::{Batch, Hands, Outgoing, Work};
use crate::held::{Held, sample};

/// Orders tried for each test.
const ORDERS: usize = 4_000;

/// Hands with so many deliveries in the buffer.
fn hands(count: u64) -> Arc<Mutex<Hands>> {
    let mut hands = Hands::new(2, 4);
    hands.expect(1, count as usize);
    for number in 1..=count {
        let held = Arc::new(Held::new(sample(number, 1), Timestamp::default()));
        hands.register(&held);
        hands.buffer.push_back(Work { held, rest: None });
    }
    Arc::new(Mutex::new(hands))
}

/// A runner: takes what is buffered, handles it, and hands in what became of it.
fn run(hands: &Mutex<Hands>) {
    let mut batch = Batch::default();
    loop {
        let next = {
            let mut hands = hands.lock().unwrap();
            hands.merge(&mut batch);
            hands.pop()
        };
        let Some(work) = next else { return };
        work.held.begin();
        thread::yield_now();
        if work.held.settle_once() {
            let settlement = Settlement::complete(work.held.token());
            batch.outgoing.push(Outgoing::new(work.held, settlement, None));
        }
    }
}

/// Every delivery has one settlement, and nothing is left over.
fn settled_once(hands: &Mutex<Hands>, count: u64) {
    let hands = hands.lock().unwrap();
    let mut settlements: BTreeMap<u64, u32> = BTreeMap::new();
    for outgoing in &hands.outbox {
        *settlements.entry(outgoing.settlement.token.message.number()).or_default() += 1;
    }
    let expected: BTreeMap<u64, u32> = (1..=count).map(|number| (number, 1)).collect();
    assert_eq!(settlements, expected);
    assert_eq!((hands.unsettled, hands.buffer.len()), (0, 0));
}

#[test]
fn interleavings_of_runners_the_keeper_and_a_stop_settle_every_delivery_once() {
    shuttle::check_random(
        || {
            let hands = hands(3);
            let runners = [hands.clone(), hands.clone()].map(|hands| thread::spawn(move || run(&hands)));
            let keeper = {
                let hands = hands.clone();
                thread::spawn(move || {
                    hands
                        .lock()
                        .unwrap()
                        .expire_buffer(Timestamp::from_millis(20_000), Duration::from_secs(15));
                })
            };
            // What a stop does at its limit: it gives back whatever is not settled, running or not.
            let stop = {
                let hands = hands.clone();
                thread::spawn(move || {
                    let mut hands = hands.lock().unwrap();
                    let running: Vec<_> =
                        hands.held.iter().filter(|held| !held.is_settled()).cloned().collect();
                    for held in running {
                        hands.release(held.clone());
                        held.lose();
                    }
                })
            };
            for thread in runners {
                thread.join().unwrap();
            }
            keeper.join().unwrap();
            stop.join().unwrap();
            hands.lock().unwrap().empty_buffer();
            settled_once(&hands, 3);
        },
        ORDERS,
    );
}

#[test]
fn interleavings_of_raising_a_flag_wake_everybody_who_waits() {
    shuttle::check_random(
        || {
            let flag = Arc::new(Flag::default());
            let waiting = [flag.clone(), flag.clone()]
                .map(|flag| thread::spawn(move || future::block_on(async move { flag.up().await })));
            let raising = {
                let flag = flag.clone();
                thread::spawn(move || flag.raise())
            };
            raising.join().unwrap();
            for thread in waiting {
                thread.join().unwrap();
            }
            assert!(flag.is_up());
        },
        ORDERS,
    );
}
