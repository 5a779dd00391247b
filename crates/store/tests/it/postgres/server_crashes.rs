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
        if settlements.is_empty() && promised.stop.load(Ordering::SeqCst) {
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
