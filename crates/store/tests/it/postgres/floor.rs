//! A claim begins where the last one of its process ended, and still misses nothing.

use std::sync::Arc;
use std::time::Duration;

use sickbay_core::message::Priority;
use sickbay_core::port::{Deliveries, Exchange, Pusher};
use sickbay_core::{Delivery, Settlement, Timestamp};
use sickbay_store::PostgresStore;
use sickbay_testkit::ManualClock;

use super::many::{claim, message, queue};
use super::{Schema, address, block};

/// Two instances and six messages that have been waiting for a while. The first instance holds 2 and 3 and knows
/// that nothing lies before them; the second holds 1.
struct Two {
    clock: Arc<ManualClock>,
    first: PostgresStore,
    second: PostgresStore,
    one: Delivery,
    two: Delivery,
    _schema: Schema,
}

async fn two() -> Two {
    let schema = Schema::create().await;
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)));
    let (address, options) = (address(), schema.options().clock(clock.clone()));
    let first = PostgresStore::connect(&address, options.clone()).await.unwrap();
    let second = PostgresStore::connect(&address, options).await.unwrap();
    sickbay_core::port::Desk::define_queue(&first, &queue(), Default::default()).await.unwrap();
    first.push((1..=6).map(|n| message(n.to_string())).collect()).await.unwrap();
    clock.advance(Duration::from_secs(10));
    let one = take(&second, 1).await.remove(0);
    let mut held = take(&first, 2).await;
    assert_eq!(said(&held), "2 3");
    Two { clock, first, second, one, two: held.remove(0), _schema: schema }
}

async fn take(store: &PostgresStore, max: u32) -> Vec<Delivery> {
    let exchange = Exchange { settlements: Vec::new(), claim: Some(claim(store.process(), max)) };
    store.exchange(exchange).await.unwrap().deliveries
}

async fn release(store: &PostgresStore, delivery: &Delivery) {
    store.exchange(Exchange::settle(vec![Settlement::release(delivery.token())])).await.unwrap();
}

fn said(deliveries: &[Delivery]) -> String {
    let text = |delivery: &Delivery| String::from_utf8_lossy(&delivery.message.payload).into_owned();
    deliveries.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_another_instance_gives_back_is_found_when_nothing_else_is_left() {
    block(async {
        let two = two().await;
        release(&two.second, &two.one).await;
        assert_eq!(said(&take(&two.first, 2).await), "4 5", "the claim began anew at the front");
        assert_eq!(said(&take(&two.first, 2).await), "6");
        assert_eq!(said(&take(&two.first, 2).await), "1");
        assert_eq!(said(&take(&two.first, 2).await), "");
    });
}

#[test]
fn what_another_instance_gives_back_is_found_after_a_while_though_more_is_left() {
    block(async {
        let two = two().await;
        release(&two.second, &two.one).await;
        two.clock.advance(Duration::from_secs(20));
        assert_eq!(said(&take(&two.first, 2).await), "1 4");
    });
}

#[test]
fn what_an_instance_gives_back_itself_is_found_at_once() {
    block(async {
        let two = two().await;
        release(&two.first, &two.two).await;
        assert_eq!(said(&take(&two.first, 2).await), "2 4");
    });
}

#[test]
fn an_urgent_message_is_found_at_once() {
    block(async {
        let two = two().await;
        let urgent = message("urgent").priority(Priority::new(9).unwrap());
        two.second.push(vec![urgent.clone()]).await.unwrap();
        assert_eq!(said(&take(&two.first, 2).await), "urgent 4");
        two.second.push(vec![urgent]).await.unwrap();
        assert_eq!(said(&take(&two.first, 2).await), "urgent 5");
    });
}

#[test]
fn a_claim_at_an_earlier_time_begins_at_the_front() {
    block(async {
        let two = two().await;
        release(&two.second, &two.one).await;
        two.clock.set(Timestamp::from_millis(1_009_999));
        assert_eq!(said(&take(&two.first, 2).await), "1 4");
    });
}

#[test]
fn a_lease_that_ended_is_found_by_those_who_looked_just_before() {
    block(async {
        let two = two().await;
        two.clock.advance(Duration::from_millis(59_999));
        assert_eq!(said(&take(&two.first, 1).await), "4");
        two.clock.advance(Duration::from_millis(1));
        assert_eq!(said(&take(&two.first, 4).await), "1 2 3 5");
    });
}
