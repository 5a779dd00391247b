//! What calls on several connections do to each other, step by step: the one behind the store's back stays open.

use std::sync::Arc;
use std::time::Duration;

use sickbay_core::message::Status;
use sickbay_core::port::{Deliveries, Desk, Exchange, Overview, ProcessId, Pusher, Replay, Replayed};
use sickbay_core::settlement::Settled;
use sickbay_core::verdict::Effect;
use sickbay_core::{
    Clock, Delivery, Key, MessageId, MessageType, NewMessage, QueueName, QueuePolicy, Settlement, StreamKey,
    Timestamp,
};
use sickbay_store::{PostgresEffect, PostgresStore};
use sickbay_testkit::ManualClock;
use tokio::time::timeout;
use tokio_postgres::{Client, Transaction};

use super::many::{claim, message, queue};
use super::{RUNTIME, Schema, address, block, connect};

/// Longer than anything here takes, and shorter than a call may.
const SOON: Duration = Duration::from_secs(10);

struct Scene {
    clock: Arc<ManualClock>,
    store: PostgresStore,
    beside: Client,
    schema: Schema,
}

impl Scene {
    async fn new() -> Self {
        let schema = Schema::create().await;
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)));
        let options = schema.options().clock(clock.clone()).connections(4);
        let store = PostgresStore::connect(&address(), options).await.unwrap();
        for name in ["q", "r"] {
            store.define_queue(&QueueName::new(name).unwrap(), QueuePolicy::default()).await.unwrap();
        }
        Self { clock, store, beside: connect(&address()).await, schema }
    }

    /// What this process gets at once; it must not wait for anybody.
    async fn take(&self, max: u32) -> Vec<Delivery> {
        take(&self.store, max).await
    }

    async fn push(&self, message: NewMessage) -> MessageId {
        self.store.push(vec![message]).await.unwrap()[0].id()
    }

    async fn settle(&self, settlement: Settlement) -> Settled {
        self.store.exchange(Exchange::settle(vec![settlement])).await.unwrap().settled[0].clone()
    }

    /// A message that was in the hands of a process when it died.
    async fn suspect(&self, payload: &str) {
        self.store.push(vec![message(payload).message_type(MessageType::new("t").unwrap())]).await.unwrap();
        let other = ProcessId(77);
        let held = self.store.exchange(Exchange::claim(claim(other, 1))).await.unwrap().deliveries;
        assert_eq!(said(&held), payload);
        self.store.process_died(other, "signal 9".to_owned()).await.unwrap();
    }

    /// A claim of this process that is not committed yet.
    fn claim_sql(&self, queue: &str) -> String {
        let (now, process) = (self.clock.now().millis(), self.store.process().0);
        let nothing = vec!["NULL"; 14].join(", ");
        self.schema.sql(&format!(
            "SELECT id, epoch, claim FROM sickbay.exchange({now}, {nothing}, '{queue}', 'w', {process}, 1, 60000, NULL, NULL, NULL, NULL)"
        ))
    }
}

async fn take(store: &PostgresStore, max: u32) -> Vec<Delivery> {
    let answer = timeout(SOON, store.exchange(Exchange::claim(claim(store.process(), max)))).await;
    answer.expect("the claim waits for somebody").unwrap().deliveries
}

fn said(deliveries: &[Delivery]) -> String {
    let text = |delivery: &Delivery| String::from_utf8_lossy(&delivery.message.payload).into_owned();
    deliveries.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_suspect_is_not_handed_out_while_another_claim_of_its_process_is_under_way() {
    block(async {
        let scene = Scene::new().await;
        let elsewhere = QueueName::new("r").unwrap();
        scene.push(NewMessage::new(elsewhere, "plain")).await;
        let sql = scene.claim_sql("r");
        let mut other = connect(&address()).await;
        let transaction = other.transaction().await.unwrap();
        assert_eq!(transaction.query(&sql, &[]).await.unwrap().len(), 2);
        scene.push(message("suspect")).await;
        let died = ProcessId(77);
        assert_eq!(scene.store.exchange(Exchange::claim(claim(died, 1))).await.unwrap().deliveries.len(), 1);
        scene.store.process_died(died, "signal 9".to_owned()).await.unwrap();
        assert_eq!(said(&scene.take(1).await), "", "the process has its hands full in a moment");
        transaction.rollback().await.unwrap();
        assert_eq!(said(&scene.take(1).await), "suspect");
    });
}

#[test]
fn nothing_is_handed_out_while_another_claim_of_the_process_takes_a_suspect() {
    block(async {
        let scene = Scene::new().await;
        scene.suspect("suspect").await;
        assert_eq!(scene.store.stats(&queue()).await.unwrap().pending, 1);
        let elsewhere = QueueName::new("r").unwrap();
        scene.push(NewMessage::new(elsewhere.clone(), "plain")).await;
        // The process works on q.
        let sql = scene.claim_sql("q");
        let mut other = connect(&address()).await;
        let transaction = other.transaction().await.unwrap();
        assert_eq!(transaction.query(&sql, &[]).await.unwrap().len(), 2);
        let plain = Exchange::claim(sickbay_core::port::Claim {
            queue: elsewhere,
            ..claim(scene.store.process(), 1)
        });
        assert!(scene.store.exchange(plain).await.unwrap().deliveries.is_empty());
        transaction.rollback().await.unwrap();
        assert_eq!(said(&scene.take(1).await), "suspect");
    });
}

#[test]
fn a_suspect_that_came_while_its_gate_was_set_holds_nobody_up() {
    block(async {
        let scene = Scene::new().await;
        scene.suspect("suspect").await;
        scene.push(message("plain")).await;
        // As two transactions leave it that did not see each other.
        let gate = "INSERT INTO sickbay.type_gate SELECT no, 't', 1, 0 FROM sickbay.queue WHERE name = 'q'";
        scene.beside.batch_execute(&scene.schema.sql(gate)).await.unwrap();
        assert_eq!(said(&scene.take(9).await), "plain");
        let open = sickbay_core::stats::TypeGate::Open;
        scene.store.set_type_gate(&queue(), &MessageType::new("t").unwrap(), open).await.unwrap();
        let other = scene.store.exchange(Exchange::claim(claim(ProcessId(9), 9))).await.unwrap();
        assert_eq!(said(&other.deliveries), "suspect");
    });
}

#[test]
fn an_effect_that_outlasts_its_lease_is_committed_with_the_acknowledgement() {
    block(async {
        let scene = Scene::new().await;
        scene.push(message("a")).await;
        let held = scene.take(1).await;
        let table = scene.schema.sql("CREATE TABLE sickbay.handled (key text)");
        scene.beside.batch_execute(&table).await.unwrap();
        let insert = scene.schema.sql("INSERT INTO sickbay.handled VALUES ('a')");
        let clock = scene.clock.clone();
        let slow: Effect = PostgresEffect::new(move |transaction| {
            Box::pin(async move {
                clock.advance(Duration::from_secs(61));
                transaction.batch_execute(&insert).await
            })
        });
        let settlement = Settlement { effect: Some(slow), ..Settlement::complete(held[0].token()) };
        let exchange =
            Exchange { settlements: vec![settlement], claim: Some(claim(scene.store.process(), 1)) };
        let exchanged = scene.store.exchange(exchange).await.unwrap();
        assert_eq!(exchanged.settled, [Settled::Applied]);
        assert!(exchanged.deliveries.is_empty(), "it is done");
        let count = scene.schema.sql("SELECT count(*) FROM sickbay.handled");
        assert_eq!(scene.beside.query_one(&count, &[]).await.unwrap().get::<_, i64>(0), 1);
    });
}

#[test]
fn a_transaction_with_effects_does_not_keep_its_locks_when_its_machine_vanishes() {
    block(async {
        let scene = Scene::new().await;
        scene.push(message("a")).await;
        let held = scene.take(1).await;
        let ask = "SELECT setting::bigint / (setting::bigint BETWEEN 1 AND 60000)::integer FROM pg_settings
                   WHERE name = 'idle_in_transaction_session_timeout'";
        let effect = PostgresEffect::new(move |transaction| {
            Box::pin(async move { transaction.batch_execute(ask).await })
        });
        let settlement = Settlement { effect: Some(effect), ..Settlement::complete(held[0].token()) };
        assert_eq!(scene.settle(settlement).await, Settled::Applied);
    });
}

#[test]
fn a_claim_that_commits_after_a_new_epoch_began_counts_for_nothing() {
    block(async {
        let scene = Scene::new().await;
        let id = scene.push(message("a")).await;
        let sql = scene.claim_sql("q");
        let mut other = connect(&address()).await;
        let transaction = other.transaction().await.unwrap();
        let head = transaction.query(&sql, &[]).await.unwrap().remove(0);
        let token = sickbay_core::LeaseToken {
            epoch: head.get::<_, i64>("epoch") as u64,
            claim: head.get::<_, i64>("claim") as u64,
            message: id,
        };
        scene.store.begin_epoch().await.unwrap();
        transaction.commit().await.unwrap();
        for settlement in [Settlement::complete(token), Settlement::release(token)] {
            let exchanged = scene.store.exchange(Exchange::settle(vec![settlement])).await.unwrap();
            assert_eq!(exchanged.settled, [Settled::LeaseLost]);
        }
        let renewal = sickbay_core::port::Renewal { tokens: vec![token], lease: Duration::from_secs(60) };
        assert_eq!(scene.store.renew(renewal).await.unwrap(), [token]);
        scene.store.sweep().await.unwrap();
        assert_eq!(said(&scene.take(1).await), "a");
    });
}

#[test]
fn a_store_that_is_closed_gives_back_what_a_claim_under_way_gets() {
    block(async {
        let scene = Scene::new().await;
        scene.push(message("a")).await;
        // The claim is under way for as long as somebody else has the queue's table.
        let lock = scene.schema.sql("BEGIN; LOCK TABLE sickbay.presence IN ACCESS EXCLUSIVE MODE");
        scene.beside.batch_execute(&lock).await.unwrap();
        let mut waiting = claim(scene.store.process(), 1);
        waiting.wait = Duration::from_secs(60);
        let (store, closing) = (scene.store.clone(), scene.store.clone());
        let claiming = RUNTIME.spawn(async move { store.exchange(Exchange::claim(waiting)).await });
        let waits =
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'sickbay.presence'::regclass";
        let watcher = connect(&address()).await;
        while watcher.query_one(&scene.schema.sql(waits), &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
        claiming.abort();
        drop(claiming.await);
        let closed = RUNTIME.spawn(async move { closing.close().await });
        // Closing has begun when nothing new is taken in.
        while scene.store.stats(&queue()).await.is_ok() {
            tokio::task::yield_now().await;
        }
        scene.beside.batch_execute("COMMIT").await.unwrap();
        closed.await.unwrap().unwrap();
        let options = scene.schema.options().clock(scene.clock.clone());
        let next = PostgresStore::connect(&address(), options).await.unwrap();
        assert_eq!(said(&take(&next, 1).await), "a");
        let stats = next.stats(&queue()).await.unwrap();
        assert_eq!((stats.pending, stats.active), (0, 1));
    });
}

#[test]
fn nobody_waits_for_a_callers_transaction_that_pushes_into_a_stream_and_stays_open() {
    block(async {
        let scene = Scene::new().await;
        let in_stream = message("first").stream(StreamKey::new("s").unwrap());
        scene.push(in_stream).await;
        assert_eq!(said(&scene.take(1).await), "first");
        let mut other = connect(&address()).await;
        let transaction = other.transaction().await.unwrap();
        let second = message("second").stream(StreamKey::new("s").unwrap());
        scene.store.push_in(&transaction, &[second]).await.unwrap();
        scene.clock.advance(Duration::from_secs(61));
        scene.push(message("plain")).await;
        assert_eq!(said(&scene.take(9).await), "plain");
        timeout(SOON, scene.store.sweep()).await.expect("the sweep waits for somebody").unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(said(&scene.take(9).await), "first second");
    });
}

#[test]
fn nobody_waits_for_a_callers_transaction_that_has_the_key_of_a_lease_that_ended() {
    block(async {
        let scene = Scene::new().await;
        let keyed = || message("keyed").key(Key::new("k").unwrap());
        scene.push(keyed()).await;
        assert_eq!(said(&scene.take(1).await), "keyed");
        let mut other = connect(&address()).await;
        let transaction = other.transaction().await.unwrap();
        scene.store.push_in(&transaction, &[keyed()]).await.unwrap();
        scene.clock.advance(Duration::from_secs(61));
        scene.push(message("plain")).await;
        assert_eq!(said(&scene.take(9).await), "plain");
        timeout(SOON, scene.store.sweep()).await.expect("the sweep waits for somebody").unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(said(&scene.take(9).await), "keyed");
    });
}

#[test]
fn nobody_waits_for_a_callers_transaction_that_pushes_with_a_key_and_stays_open() {
    block(async {
        let scene = Scene::new().await;
        let keyed = || message("keyed").key(Key::new("k").unwrap());
        let id = scene.push(keyed()).await;
        scene.store.dead_letter(vec![id], "for now".to_owned()).await.unwrap();
        for forgets_key in [false, true] {
            if forgets_key {
                let forget = scene.schema.sql("DELETE FROM sickbay.key");
                scene.beside.batch_execute(&forget).await.unwrap();
            }
            scene.store.replay(vec![Replay::raw(id)]).await.unwrap();
            let mut other = connect(&address()).await;
            let transaction = other.transaction().await.unwrap();
            scene.store.push_in(&transaction, &[keyed()]).await.unwrap();
            scene.push(message("plain")).await;
            let held = scene.take(9).await;
            assert_eq!(said(&held), "plain");
            scene
                .store
                .exchange(Exchange::settle(vec![Settlement::complete(held[0].token())]))
                .await
                .unwrap();
            transaction.rollback().await.unwrap();
            scene.store.dead_letter(vec![id], "for now".to_owned()).await.unwrap();
        }
        let view = scene.store.find(id.to_string().parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(view.status, Status::Dead);
    });
}

#[test]
fn streams_and_keys_are_locked_in_one_order_whatever_the_language_of_the_database() {
    block(async {
        let server = connect(&address()).await;
        let name = format!("words_{}", std::process::id());
        let create = format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'"
        );
        server.batch_execute(&create).await.unwrap();
        let there = format!("{}/{name}", address().rsplit_once('/').unwrap().0);
        let options = sickbay_store::PostgresOptions::default();
        PostgresStore::migrate(&there, &options).await.unwrap();
        let store = PostgresStore::connect(&there, options).await.unwrap();
        store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
        let in_stream = |name: &str| message(name).stream(StreamKey::new(name).unwrap());
        store.push(vec![in_stream("a"), in_stream("B")]).await.unwrap();
        let mut first = connect(&there).await;
        let second = connect(&there).await;
        let transaction = first.transaction().await.unwrap();
        let lock = "SELECT 1 FROM sickbay.stream WHERE key = 'B' FOR UPDATE";
        transaction.query_one(lock, &[]).await.unwrap();
        let (pushes, both) = (store.clone(), vec![in_stream("a"), in_stream("B")]);
        let pushing = RUNTIME.spawn(async move { pushes.push(both).await });
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'";
        while second.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
        let free = "SELECT 1 FROM sickbay.stream WHERE key = 'a' FOR UPDATE NOWAIT";
        second.query_one(free, &[]).await.expect("B comes before a");
        transaction.rollback().await.unwrap();
        pushing.await.unwrap().unwrap();
        store.close().await.unwrap();
        drop((first, second));
        server.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
    });
}

#[test]
fn what_was_settled_is_told_though_a_damaged_message_cannot_be_set_aside() {
    block(async {
        let scene = Scene::new().await;
        scene.store.push(vec![message("a"), message("b"), message("c")]).await.unwrap();
        let held = scene.take(1).await;
        let breaks = "UPDATE sickbay.waiting SET payload = 'x' WHERE payload = 'b';
                      UPDATE sickbay.queue SET policy = 'nonsense'";
        scene.beside.batch_execute(&scene.schema.sql(breaks)).await.unwrap();
        let settlements = vec![Settlement::complete(held[0].token())];
        let exchange = Exchange { settlements, claim: Some(claim(scene.store.process(), 1)) };
        let exchanged = scene.store.exchange(exchange).await.unwrap();
        assert_eq!((exchanged.settled, said(&exchanged.deliveries)), (vec![Settled::Applied], String::new()));
        // What was not set aside is met again, beside one that is whole.
        scene.clock.advance(Duration::from_secs(61));
        assert_eq!(said(&scene.take(2).await), "c");
    });
}

/// Goes on when somebody waits for what this connection has locked.
async fn somebody_waits(client: &Client, pid: i32) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
    while client.query_one(sql, &[&pid]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}

async fn pid(transaction: &Transaction<'_>) -> i32 {
    transaction.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

#[test]
fn an_act_on_several_messages_that_waits_for_a_caller_holds_nothing_that_the_caller_needs() {
    block(async {
        let scene = Scene::new().await;
        let of = |stream: &str| message(stream).stream(StreamKey::new(stream).unwrap());
        let ids = vec![scene.push(of("s1")).await, scene.push(of("s0")).await];
        let mut other = connect(&address()).await;
        let transaction = other.transaction().await.unwrap();
        scene.store.push_in(&transaction, &[of("s0")]).await.unwrap();
        let store = scene.store.clone();
        let act = RUNTIME.spawn(async move { store.hasten(ids).await });
        somebody_waits(&scene.beside, pid(&transaction).await).await;
        transaction.batch_execute("SET LOCAL lock_timeout = '300ms'").await.unwrap();
        scene.store.push_in(&transaction, &[of("s1")]).await.expect("the caller waits for nobody");
        transaction.commit().await.unwrap();
        assert_eq!(act.await.unwrap().unwrap().len(), 2);
    });
}

#[test]
fn a_dead_letter_that_is_replayed_at_this_moment_can_be_set_aside_again() {
    block(async {
        let scene = Scene::new().await;
        let id = scene.push(message("a")).await;
        scene.store.dead_letter(vec![id], "for now".to_owned()).await.unwrap();
        let mut other = connect(&address()).await;
        let transaction = other.transaction().await.unwrap();
        let (now, number) = (scene.clock.now().millis(), id.number());
        let replay = format!("SELECT sickbay.replay({now}, ARRAY[{number}], NULL, NULL, NULL)");
        transaction.query(&scene.schema.sql(&replay), &[]).await.unwrap();
        let store = scene.store.clone();
        let again = RUNTIME.spawn(async move { store.dead_letter(vec![id], "again".to_owned()).await });
        somebody_waits(&scene.beside, pid(&transaction).await).await;
        transaction.commit().await.unwrap();
        assert_eq!(again.await.unwrap().unwrap(), [Replayed::Done]);
    });
}
