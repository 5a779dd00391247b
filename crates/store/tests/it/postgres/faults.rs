//! Connections that break, and none to be had.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sickbay_core::port::{Deliveries, Exchange, Overview, Pushed, Pusher};
use sickbay_core::{ErrorKind, Key, QueuePolicy, Settlement};
use sickbay_store::PostgresStore;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::many::{claim, message, open, queue};
use super::{RUNTIME, Schema, address, block, connect};

/// A way to the server that can be cut.
struct Proxy {
    address: String,
    cut: Arc<Notify>,
    /// What the server answers is not passed on any more.
    deaf: Arc<AtomicBool>,
}

impl Proxy {
    async fn start() -> Self {
        let config: tokio_postgres::Config = address().parse().unwrap();
        let server = config.get_ports()[0];
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, deaf) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (cutting, deafness) = (cut.clone(), deaf.clone());
        RUNTIME.spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (cutting, deafness) = (cutting.clone(), deafness.clone());
                RUNTIME.spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                    tokio::select! {
                        _ = pass(&mut client, &mut server, &deafness) => {}
                        () = cutting.notified() => {}
                    }
                });
            }
        });
        Self { address: address().replace(&format!(":{server}"), &format!(":{port}")), cut, deaf }
    }
}

/// Passes everything on, until the server answers while nobody is to hear it: then it hangs up.
async fn pass(client: &mut TcpStream, server: &mut TcpStream, deaf: &AtomicBool) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let there = tokio::io::copy(&mut from_client, &mut to_server);
    let back = async {
        let mut bytes = vec![0; 1 << 16];
        loop {
            let count = from_server.read(&mut bytes).await.unwrap_or(0);
            if count == 0 || deaf.load(Ordering::SeqCst) {
                return;
            }
            if to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = there => {}
        () = back => {}
    }
}

#[test]
fn a_connection_that_breaks_at_the_commit_is_never_called_a_success() {
    block(async {
        let schema = Schema::create().await;
        let direct = open(&schema, QueuePolicy::default()).await;
        let proxy = Proxy::start().await;
        let options = schema.options().connections(1).listen(false);
        let store = PostgresStore::connect(&proxy.address, options).await.unwrap();
        let keyed = || message("a").key(Key::new("order-7").unwrap());
        proxy.deaf.store(true, Ordering::SeqCst);
        let error = store.push(vec![keyed()]).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::TryAgain, "SB0065"), "{error}");
        proxy.deaf.store(false, Ordering::SeqCst);
        // It may have been done, and with a key it is done once however often it is tried.
        let again = store.push(vec![keyed()]).await.unwrap();
        let third = store.push(vec![keyed()]).await.unwrap();
        assert_eq!(third[0], Pushed::Duplicate(again[0].id()));
        let stats = direct.stats(&queue()).await.unwrap();
        assert_eq!((stats.pushed, stats.pending), (1, 1));
    });
}

#[test]
fn a_pool_without_a_free_connection_says_so_in_time() {
    block(async {
        let schema = Schema::create().await;
        let options =
            schema.options().connections(1).connection_wait(Duration::from_millis(200)).listen(false);
        let store = PostgresStore::connect(&address(), options).await.unwrap();
        let mut client = connect(&address()).await;
        let blocking = client.transaction().await.unwrap();
        blocking
            .batch_execute(&schema.sql("LOCK TABLE sickbay.queue IN ACCESS EXCLUSIVE MODE"))
            .await
            .unwrap();
        // One of the two has the connection and cannot go on.
        let ask = || {
            let store = store.clone();
            RUNTIME.spawn(async move { store.queues().await.map(|queues| queues.len()) })
        };
        let (first, stuck) = match futures::future::select(ask(), ask()).await {
            futures::future::Either::Left((first, stuck))
            | futures::future::Either::Right((first, stuck)) => (first.unwrap(), stuck),
        };
        let error = first.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::TryAgain, "SB0064"), "{error}");
        blocking.rollback().await.unwrap();
        assert_eq!(stuck.await.unwrap().unwrap(), 0);
        assert!(store.queues().await.is_ok(), "it goes on by itself");
    });
}

/// Ends the connection that listens; true if there was one.
async fn end_listening(client: &tokio_postgres::Client, schema: &Schema) -> bool {
    let sql = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN \"{}.wake\"%'",
        schema.0
    );
    !client.query(&sql, &[]).await.unwrap().is_empty()
}

#[test]
fn waiting_claims_are_served_by_other_instances_also_after_the_listening_connection_was_lost() {
    block(async {
        let schema = Schema::create().await;
        let (store, other) =
            (open(&schema, QueuePolicy::default()).await, open(&schema, QueuePolicy::default()).await);
        let client = connect(&address()).await;
        for round in 0..3 {
            if round > 0 {
                while !end_listening(&client, &schema).await {
                    tokio::task::yield_now().await;
                }
            }
            let mut waiting = claim(store.process(), 1);
            waiting.wait = Duration::from_secs(60);
            let waits = store.clone();
            let waiting = RUNTIME.spawn(async move { waits.exchange(Exchange::claim(waiting)).await });
            let pushed = other.push(vec![message("a")]).await.unwrap();
            let served = waiting.await.unwrap().unwrap();
            assert_eq!(served.deliveries[0].message.id, pushed[0].id());
        }
    });
}

#[test]
fn every_connection_can_be_lost_and_the_store_goes_on() {
    block(async {
        let schema = Schema::create().await;
        let direct = open(&schema, QueuePolicy::default()).await;
        let proxy = Proxy::start().await;
        let store = PostgresStore::connect(&proxy.address, schema.options().connections(2)).await.unwrap();
        let mut known = 0;
        for n in 0..10 {
            if n % 3 == 2 {
                proxy.cut.notify_waiters();
            }
            // At most one try for each connection that was open fails.
            let mut tries = 0;
            while let Err(error) = store.push(vec![message(format!("{n}"))]).await {
                assert_eq!(error.kind(), ErrorKind::TryAgain, "{error}");
                tries += 1;
                assert!(tries < 10, "{error}");
            }
            known += 1;
        }
        let stats = direct.stats(&queue()).await.unwrap();
        assert!(stats.pushed >= known && stats.adds_up(), "what was acknowledged is there");
    });
}

#[test]
fn a_transaction_that_is_held_open_stops_no_claim_and_is_shown_to_operators() {
    block(async {
        let schema = Schema::create().await;
        let store = open(&schema, QueuePolicy::default()).await;
        let holder = connect(&address()).await;
        let begin = "SET application_name = 'held-open'; BEGIN ISOLATION LEVEL REPEATABLE READ;";
        holder.batch_execute(&schema.sql(&format!("{begin} SELECT * FROM sickbay.waiting"))).await.unwrap();
        for _ in 0..10 {
            store.push((0..100).map(|n| message(format!("{n}"))).collect()).await.unwrap();
            let held = store.exchange(Exchange::claim(claim(store.process(), 100))).await.unwrap().deliveries;
            assert_eq!(held.len(), 100, "a claim returns all that is there");
            let done = held.iter().map(|one| Settlement::complete(one.token())).collect();
            store.exchange(Exchange::settle(done)).await.unwrap();
        }
        let seen = PostgresStore::examine(&address(), &schema.options()).await.unwrap();
        let pin = seen.pins.iter().find(|pin| pin.who.contains("held-open")).expect("it is shown");
        assert!(pin.state.contains("idle in transaction"), "{pin:?}");
        holder.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(store.stats(&queue()).await.unwrap().completed, 1000);
    });
}
