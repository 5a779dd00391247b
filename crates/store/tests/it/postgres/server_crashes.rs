//! The server is stopped at once, again and again, under load.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sickbay_core::port::{Deliveries, Desk, Exchange, Overview, Pusher};
use sickbay_core::settlement::Settled;
use sickbay_core::{ErrorKind, Key, MessageId, QueuePolicy, Settlement};
use sickbay_store::{PostgresOptions, PostgresStore};
use sickbay_testkit::cluster::Cluster;

use super::many::{claim, message, queue};
use super::{RUNTIME, block};

const CYCLES: usize = 4;

/// What was promised so far.
#[derive(Default)]
struct Promised {
    pushed: Mutex<BTreeSet<MessageId>>,
    done: Mutex<BTreeSet<MessageId>>,
    answers: AtomicU64,
    stop: AtomicBool,
    /// Nothing more is pushed.
    all: AtomicBool,
}

/// Pushes with keys until it is told to stop; tries again what may not have been done.
async fn produce(store: PostgresStore, promised: Arc<Promised>) {
    let mut number = 0;
    while !promised.stop.load(Ordering::SeqCst) {
        number += 1;
        let keyed = || message("x").key(Key::new(format!("k{number}")).unwrap());
        let pushed = loop {
            match store.push(vec![keyed()]).await {
                Ok(pushed) => break pushed,
                Err(error) => assert_eq!(error.kind(), ErrorKind::TryAgain, "{error}"),
            }
        };
        promised.pushed.lock().unwrap().insert(pushed[0].id());
        promised.answers.fetch_add(1, Ordering::SeqCst);
    }
}

/// Claims and completes until everything that was promised is done.
async fn consume(store: PostgresStore, promised: Arc<Promised>) {
    let mut held: Vec<MessageId> = Vec::new();
    let mut settlements: Vec<Settlement> = Vec::new();
    loop {
        let mut claim = claim(store.process(), 5);
        claim.lease = Duration::from_millis(500);
        match store
            .exchange(Exchange { settlements: std::mem::take(&mut settlements), claim: Some(claim) })
            .await
        {
            Ok(exchanged) => {
                let settled = held.iter().zip(&exchanged.settled).filter(|(_, s)| **s == Settled::Applied);
                promised.done.lock().unwrap().extend(settled.map(|(id, _)| *id));
                held = exchanged.deliveries.iter().map(|delivery| delivery.message.id).collect();
                settlements = exchanged.deliveries.iter().map(|d| Settlement::complete(d.token())).collect();
            }
            // What was held may be done, and comes back if it is not.
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TryAgain, "{error}");
                held.clear();
            }
        }
        if settlements.is_empty() && promised.all.load(Ordering::SeqCst) {
            let stats = store.stats(&queue()).await;
            if stats.is_ok_and(|stats| stats.pending + stats.active == 0) {
                return;
            }
        }
    }
}

#[test]
fn a_server_that_is_stopped_at_once_again_and_again_loses_nothing() {
    let mut cluster = Cluster::start();
    let address = cluster.address();
    let options = PostgresOptions::default().connections(6);
    let promised = Arc::new(Promised::default());
    let store = block(async {
        PostgresStore::migrate(&address, &options).await.unwrap();
        let store = PostgresStore::connect(&address, options).await.unwrap();
        store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
        store
    });
    let producing = RUNTIME.spawn(produce(store.clone(), promised.clone()));
    let consuming: Vec<_> = (0..2).map(|_| RUNTIME.spawn(consume(store.clone(), promised.clone()))).collect();
    for _ in 0..CYCLES {
        let before = promised.answers.load(Ordering::SeqCst);
        while promised.answers.load(Ordering::SeqCst) < before + 50 {
            assert!(!producing.is_finished(), "the producer gave up");
            std::thread::yield_now();
        }
        cluster.restart();
    }
    promised.stop.store(true, Ordering::SeqCst);
    block(async {
        producing.await.unwrap();
        promised.all.store(true, Ordering::SeqCst);
        for one in consuming {
            one.await.unwrap();
        }
        let stats = store.stats(&queue()).await.unwrap();
        let pushed = promised.pushed.lock().unwrap().clone();
        assert!(stats.adds_up(), "{stats:?}");
        assert_eq!(stats.completed, pushed.len() as u64, "each key once, and nothing is lost");
        let done = promised.done.lock().unwrap().clone();
        assert!(done.is_subset(&pushed) && done.len() as u64 <= stats.completed);
    });
}

/// A store with the queue `q` in this server.
async fn open(address: &str) -> PostgresStore {
    let options = PostgresOptions::default().connections(3);
    PostgresStore::migrate(address, &options).await.unwrap();
    let store = PostgresStore::connect(address, options).await.unwrap();
    store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
    store
}

#[test]
fn a_standby_that_takes_over_begins_a_new_epoch_and_loses_nothing_that_it_has() {
    let mut cluster = Cluster::start();
    block(async {
        let before = open(&cluster.address()).await;
        before.push((0..10).map(|n| message(n.to_string())).collect()).await.unwrap();
        let first = Exchange::claim(claim(before.process(), 4));
        let held = before.exchange(first).await.unwrap().deliveries;
        let standby = cluster.standby();
        // The standby may never hear of this one: its number is given again.
        let lost = before.exchange(Exchange::claim(claim(before.process(), 3))).await.unwrap().deliveries;
        cluster.crash();
        let client = super::connect(&standby.address()).await;
        client.execute("SELECT pg_promote(true)", &[]).await.unwrap();
        let after = open(&standby.address()).await;
        let tokens = held.iter().chain(&lost).map(|delivery| Settlement::complete(delivery.token()));
        let exchange = Exchange { settlements: tokens.collect(), claim: Some(claim(after.process(), 20)) };
        let exchanged = after.exchange(exchange).await.unwrap();
        assert!(exchanged.settled.iter().all(|settled| *settled == Settled::LeaseLost));
        assert_eq!(exchanged.deliveries.len(), 10);
        let epochs = |deliveries: &[sickbay_core::Delivery]| deliveries[0].token().epoch;
        assert!(epochs(&exchanged.deliveries) > epochs(&held));
        // Once: nothing has happened since.
        after.sweep().await.unwrap();
        let done = exchanged.deliveries.iter().map(|delivery| Settlement::complete(delivery.token()));
        let settled = after.exchange(Exchange::settle(done.collect())).await.unwrap().settled;
        assert!(settled.iter().all(|settled| *settled == Settled::Applied));
    });
}
