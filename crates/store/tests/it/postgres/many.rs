//! Many instances on one database, at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, Overview, ProcessId, Pusher, Replayed};
use sickbay_core::settlement::Settled;
use sickbay_core::{
    Decision, Delivery, Failure, Key, MessageId, NewMessage, QueueName, QueuePolicy, Settlement, StreamKey,
    WorkerName,
};
use sickbay_store::PostgresStore;

use super::{RUNTIME, Schema, address, block, connect};

pub(super) fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

pub(super) fn claim(process: ProcessId, max: u32) -> Claim {
    Claim {
        queue: queue(),
        worker: WorkerName::new("worker").unwrap(),
        process,
        max,
        wait: Duration::ZERO,
        lease: Duration::from_secs(60),
    }
}

pub(super) fn message(payload: impl Into<String>) -> NewMessage {
    NewMessage::new(queue(), payload.into())
}

/// A store with the queue `q`, by the database's clock.
pub(super) async fn open(schema: &Schema, policy: QueuePolicy) -> PostgresStore {
    let store = PostgresStore::connect(&address(), schema.options().connections(3)).await.unwrap();
    store.define_queue(&queue(), policy).await.unwrap();
    store
}

pub(super) async fn push_many(store: &PostgresStore, messages: Vec<NewMessage>) {
    for batch in messages.chunks(500) {
        store.push(batch.to_vec()).await.unwrap();
    }
}

/// Claims and completes until the queue is empty; answers what was delivered, in order.
async fn drain(store: PostgresStore, batch: u32) -> Vec<Delivery> {
    let (mut seen, mut settlements) = (Vec::new(), Vec::new());
    loop {
        let exchange = Exchange { settlements, claim: Some(claim(store.process(), batch)) };
        let exchanged = store.exchange(exchange).await.unwrap();
        assert!(exchanged.settled.iter().all(|settled| *settled == Settled::Applied));
        settlements = exchanged.deliveries.iter().map(|d| Settlement::complete(d.token())).collect();
        seen.extend(exchanged.deliveries);
        if settlements.is_empty() {
            let stats = store.stats(&queue()).await.unwrap();
            if stats.pushed == stats.completed {
                return seen;
            }
            tokio::task::yield_now().await;
        }
    }
}

async fn drain_by_many(schema: &Schema, workers: usize, batch: u32) -> Vec<Vec<Delivery>> {
    let mut draining = Vec::new();
    for _ in 0..workers {
        let store = PostgresStore::connect(&address(), schema.options().connections(2)).await.unwrap();
        draining.push(RUNTIME.spawn(drain(store, batch)));
    }
    let mut seen = Vec::new();
    for one in draining {
        seen.push(one.await.unwrap());
    }
    seen
}

#[test]
fn claimers_on_many_connections_never_share_a_message() {
    block(async {
        let schema = Schema::create().await;
        let store = open(&schema, QueuePolicy::default()).await;
        push_many(&store, (0..3000).map(|n| message(format!("{n}"))).collect()).await;
        let seen = drain_by_many(&schema, 4, 17).await;
        let ids: Vec<MessageId> = seen.iter().flatten().map(|delivery| delivery.message.id).collect();
        assert_eq!(ids.len(), 3000);
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 3000, "each was handed out once");
        assert!(store.stats(&queue()).await.unwrap().adds_up());
    });
}

#[test]
fn streams_keep_their_order_whoever_claims() {
    block(async {
        let schema = Schema::create().await;
        let store = open(&schema, QueuePolicy { run_max: 3, ..QueuePolicy::default() }).await;
        // While they are drained, more are pushed by two instances at once.
        let pusher = |first: usize| {
            let store = store.clone();
            RUNTIME.spawn(async move {
                for n in (first..1200).step_by(2) {
                    let stream = StreamKey::new(format!("s{}", n % 7)).unwrap();
                    store.push(vec![message(format!("{n}")).stream(stream)]).await.unwrap();
                }
            })
        };
        let (one, two) = (pusher(0), pusher(1));
        one.await.unwrap();
        let drained = drain_by_many(&schema, 4, 5);
        let (seen, two) = tokio::join!(drained, two);
        two.unwrap();
        let rest = drain_by_many(&schema, 1, 50).await;
        let mut streams: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        for delivery in seen.iter().chain(&rest).flatten() {
            let stream = delivery.message.stream.as_ref().unwrap().to_string();
            let entry = (delivery.lease.token.claim, delivery.message.id.number());
            streams.entry(stream).or_default().push(entry);
        }
        assert_eq!(streams.values().map(Vec::len).sum::<usize>(), 1200);
        for (stream, mut entries) in streams {
            entries.sort_unstable();
            assert!(
                entries.is_sorted_by_key(|(_, id)| *id),
                "{stream} was claimed out of order: {entries:?}"
            );
        }
        assert!(store.streams(&queue(), 10).await.unwrap().is_empty(), "empty streams are forgotten");
    });
}

#[test]
fn of_many_who_settle_or_take_away_one_wins() {
    block(async {
        let schema = Schema::create().await;
        let store = open(&schema, QueuePolicy::default()).await;
        for _ in 0..20 {
            let id = store.push(vec![message("x")]).await.unwrap()[0].id();
            let held = store.exchange(Exchange::claim(claim(store.process(), 1))).await.unwrap().deliveries;
            let token = held[0].token();
            let settle = |settlement: Settlement| {
                let store = store.clone();
                async move { store.exchange(Exchange::settle(vec![settlement])).await.unwrap().settled[0].clone() }
            };
            let poison = Decision::Retry { after: Duration::ZERO, failure: Failure::transient("no") };
            let (done, failed, released, taken) = tokio::join!(
                settle(Settlement::complete(token)),
                settle(Settlement::new(token, poison)),
                settle(Settlement::release(token)),
                store.dead_letter(vec![id], "by hand".into()),
            );
            let won = [done, failed, released].iter().filter(|settled| **settled == Settled::Applied).count();
            let taken = taken.unwrap()[0] == Replayed::Done;
            // By hand it can also be set aside after it came back to the queue.
            assert!(won == 1 || won == 0 && taken, "{won} settlements took effect");
            assert!(store.stats(&queue()).await.unwrap().adds_up());
            store.cancel(vec![id]).await.unwrap();
        }
    });
}

#[test]
fn one_key_pushed_by_many_at_once_is_one_message() {
    block(async {
        let schema = Schema::create().await;
        let store = open(&schema, QueuePolicy::default()).await;
        let push = |n: usize| {
            let store = store.clone();
            RUNTIME.spawn(async move {
                // In other orders, so that they would wait for each other in a circle.
                let mut keys: Vec<usize> = (0..10).collect();
                keys.rotate_left(n);
                let keyed = |k: usize| message("x").key(Key::new(format!("k{k}")).unwrap());
                let pushed = store.push(keys.into_iter().map(keyed).collect()).await.unwrap();
                pushed.iter().filter(|pushed| matches!(pushed, sickbay_core::port::Pushed::New(_))).count()
            })
        };
        let mut new = 0;
        for pushed in [push(0), push(3), push(5), push(8)] {
            new += pushed.await.unwrap();
        }
        let stats = store.stats(&queue()).await.unwrap();
        assert_eq!((new, stats.pending, stats.duplicates), (10, 10, 30));
    });
}

#[test]
fn an_instance_that_died_is_found_out_when_its_name_comes_back() {
    block(async {
        let schema = Schema::create().await;
        let other = open(&schema, QueuePolicy::default()).await;
        push_many(&other, vec![message("a"), message("b"), message("c")]).await;
        let named = async || PostgresStore::connect(&address(), schema.options().name("host-a/1")).await;
        let first = named().await.unwrap();
        let held = first.exchange(Exchange::claim(claim(first.process(), 1))).await.unwrap().deliveries;
        let others = other.exchange(Exchange::claim(claim(other.process(), 1))).await.unwrap().deliveries;
        assert!(
            other
                .instances()
                .await
                .unwrap()
                .iter()
                .any(|i| i.holds == 1 && i.name.as_deref() == Some("host-a/1"))
        );
        first.crash();
        let second = named().await.unwrap();
        let again = second.exchange(Exchange::claim(claim(second.process(), 9))).await.unwrap().deliveries;
        assert_eq!(again.len(), 1, "a suspect is alone");
        assert_eq!((again[0].message.id, again[0].suspect), (held[0].message.id, true));
        let settled =
            other.exchange(Exchange::settle(vec![Settlement::complete(others[0].token())])).await.unwrap();
        assert_eq!(settled.settled, [Settled::Applied], "those who live go on");
        second.close().await.unwrap();
        let names: Vec<_> = other.instances().await.unwrap().into_iter().filter_map(|i| i.name).collect();
        assert!(names.is_empty(), "who said goodbye is not missed: {names:?}");
    });
}

#[test]
fn an_instance_that_is_closed_gives_back_what_it_holds_and_nothing_else() {
    block(async {
        let schema = Schema::create().await;
        let (here, there) =
            (open(&schema, QueuePolicy::default()).await, open(&schema, QueuePolicy::default()).await);
        push_many(&here, (0..6).map(|n| message(format!("{n}"))).collect()).await;
        let mine = here.exchange(Exchange::claim(claim(here.process(), 3))).await.unwrap().deliveries;
        let theirs = there.exchange(Exchange::claim(claim(there.process(), 2))).await.unwrap().deliveries;
        here.close().await.unwrap();
        let stats = there.stats(&queue()).await.unwrap();
        assert_eq!((stats.pending, stats.active), (4, 2));
        // The one that nobody had comes first if the claim begins where the last one ended.
        let mut again = Vec::new();
        for _ in 0..2 {
            let claim = Exchange::claim(claim(there.process(), 3));
            again.extend(there.exchange(claim).await.unwrap().deliveries);
        }
        again.retain(|delivery| delivery.message.payload != "5");
        let ids = |deliveries: &[Delivery]| deliveries.iter().map(|d| d.message.id).collect::<BTreeSet<_>>();
        assert_eq!(ids(&again), ids(&mine));
        assert!(again.iter().all(|d| !d.suspect && (d.counters.releases, d.counters.expiries) == (1, 0)));
        let settlements = theirs.iter().map(|d| Settlement::complete(d.token())).collect();
        assert_eq!(
            there.exchange(Exchange::settle(settlements)).await.unwrap().settled,
            [Settled::Applied, Settled::Applied]
        );
    });
}

#[test]
fn a_new_epoch_voids_what_was_given_out_before() {
    block(async {
        let schema = Schema::create().await;
        let store = open(&schema, QueuePolicy::default()).await;
        push_many(&store, vec![message("a")]).await;
        let old = store.exchange(Exchange::claim(claim(store.process(), 1))).await.unwrap().deliveries;
        store.begin_epoch().await.unwrap();
        let settled =
            store.exchange(Exchange::settle(vec![Settlement::complete(old[0].token())])).await.unwrap();
        assert_eq!(settled.settled, [Settled::LeaseLost]);
        let new = store.exchange(Exchange::claim(claim(store.process(), 1))).await.unwrap().deliveries;
        assert!(new[0].token().epoch > old[0].token().epoch);
    });
}

#[test]
fn what_commits_late_is_seen_by_every_list_and_claim() {
    block(async {
        let schema = Schema::create().await;
        let store = open(&schema, QueuePolicy::default()).await;
        let mut client = connect(&address()).await;
        let late = client.transaction().await.unwrap();
        let early = store.push_in(&late, &[message("pushed first, committed last")]).await.unwrap()[0].id();
        let pushed = store.push(vec![message("b")]).await.unwrap()[0].id();
        assert!(early < pushed);
        let seen = store.exchange(Exchange::claim(claim(store.process(), 9))).await.unwrap().deliveries;
        assert_eq!(seen.iter().map(|d| d.message.id).collect::<Vec<_>>(), [pushed]);
        late.commit().await.unwrap();
        let seen = store.exchange(Exchange::claim(claim(store.process(), 9))).await.unwrap().deliveries;
        assert_eq!(seen.iter().map(|d| d.message.id).collect::<Vec<_>>(), [early]);
    });
}
