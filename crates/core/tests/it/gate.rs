//! The gate before the handler (A4).

use std::time::Duration;

use sickbay_core::gate::{Invalid, Refusal, Validator, gate};
use sickbay_core::policy::{RetryOverride, RetryPolicy};
use sickbay_core::{
    Counters, Delivery, Failure, Kind, Lease, LeaseToken, Message, MessageId, MessageType, Priority,
    QueueName, QueuePolicy, Reason, Stages, Timestamp,
};

/// A delivery of a plain message with these counters.
pub(crate) fn delivery(counters: Counters) -> Delivery {
    let id = MessageId::from_number(1).unwrap();
    Delivery {
        message: Message {
            id,
            queue: QueueName::new("orders").unwrap(),
            message_type: None,
            stream: None,
            key: None,
            priority: Priority::default(),
            pushed_at: Timestamp::from_millis(1_000),
            deadline_at: None,
            headers: Vec::new(),
            payload: bytes::Bytes::from_static(b"{}"),
        },
        lease: Lease {
            token: LeaseToken { epoch: 1, claim: 1, message: id },
            granted_at: Timestamp::from_millis(1_000),
            expires_at: Timestamp::from_millis(31_000),
        },
        counters,
        stages: Stages::NONE,
        cause: None,
        suspect: false,
    }
}

fn attempts(attempts: u32) -> QueuePolicy {
    QueuePolicy::with_retry(RetryPolicy::cooldown(attempts, Duration::from_secs(1)))
}

fn delivered(deliveries: u32) -> Delivery {
    delivery(Counters { deliveries, ..Counters::default() })
}

const NOW: Timestamp = Timestamp::from_millis(5_000);

#[test]
fn exactly_at_the_limit_passes_and_one_above_is_refused() {
    for limit in [1, 2, 3, 10] {
        assert_eq!(gate(&attempts(limit), &delivered(limit), NOW, &[]), Ok(()));
        let refused = Err(Refusal::TooManyDeliveries { count: limit + 1, limit });
        assert_eq!(gate(&attempts(limit), &delivered(limit + 1), NOW, &[]), refused);
    }
    assert_eq!(gate(&attempts(0), &delivered(1), NOW, &[]), Ok(()), "the first delivery always passes");
}

#[test]
fn releases_and_crashes_do_not_count() {
    let counters = Counters { deliveries: 60, releases: 40, crashes: 17, ..Counters::default() };
    assert_eq!(gate(&attempts(3), &delivery(counters), NOW, &[]), Ok(()));
    let one_more = Counters { deliveries: 61, ..counters };
    let refused = Err(Refusal::TooManyDeliveries { count: 4, limit: 3 });
    assert_eq!(gate(&attempts(3), &delivery(one_more), NOW, &[]), refused);
}

#[test]
fn a_replayed_message_starts_anew() {
    let counters = Counters { deliveries: 9, failures: 9, ..Counters::default() }.replayed();
    let counters = Counters { deliveries: counters.deliveries + 1, ..counters };
    assert_eq!(gate(&attempts(1), &delivery(counters), NOW, &[]), Ok(()));
    assert_eq!(counters.attempt_number(), 10);
}

#[test]
fn the_gate_grants_what_the_most_generous_override_grants() {
    let order = MessageType::new("Order").unwrap();
    let override_for = |message_type, reason, attempts| RetryOverride {
        message_type,
        reason,
        retry: RetryPolicy::cooldown(attempts, Duration::ZERO),
    };
    let policy = QueuePolicy {
        overrides: vec![
            override_for(Some(order.clone()), Some(Reason::TransportUnavailable), 8),
            override_for(Some(MessageType::new("Mail").unwrap()), None, 50),
        ],
        ..attempts(3)
    };
    let mut delivery = delivered(8);
    delivery.message.message_type = Some(order);
    assert_eq!(gate(&policy, &delivery, NOW, &[]), Ok(()));
    delivery.counters.deliveries = 9;
    let refused = Err(Refusal::TooManyDeliveries { count: 9, limit: 8 });
    assert_eq!(gate(&policy, &delivery, NOW, &[]), refused);
}

#[test]
fn a_deadline_of_just_now_passes_and_a_millisecond_later_is_too_late() {
    let mut delivery = delivered(1);
    delivery.message.deadline_at = Some(NOW);
    assert_eq!(gate(&attempts(3), &delivery, NOW, &[]), Ok(()));
    let later = NOW.plus(Duration::from_millis(1));
    let refused = Err(Refusal::Expired { late_by: Duration::from_millis(1) });
    assert_eq!(gate(&attempts(3), &delivery, later, &[]), refused);
}

#[test]
fn a_validators_refusal_carries_the_path_and_is_poison() {
    let wrong = |_: &Message| Err(Invalid::new("-5 is less than the minimum of 1").at("/amountCents"));
    let refusal = gate(&attempts(3), &delivered(1), NOW, &[&wrong]).unwrap_err();
    let mut failure =
        Failure::new(Kind::Poison, Reason::ValidationFailure, "-5 is less than the minimum of 1");
    failure.schema_path = Some("/amountCents".to_owned());
    assert_eq!(refusal, Refusal::Invalid(failure));
}

#[test]
fn a_body_that_cannot_be_read_is_a_serialization_error() {
    let unreadable = |_: &Message| Err(Invalid::unreadable("expected value at line 1 column 1"));
    let Err(Refusal::Invalid(failure)) = gate(&attempts(3), &delivered(1), NOW, &[&unreadable]) else {
        panic!("it was refused");
    };
    assert_eq!((failure.kind, failure.reason), (Kind::Poison, Reason::SerializationError));
}

#[test]
fn validators_see_the_message_in_order_and_the_first_refusal_stands() {
    let sees_the_body = |message: &Message| {
        if &message.payload[..] == b"{}" { Ok(()) } else { Err(Invalid::new("not what was pushed")) }
    };
    let first = |_: &Message| Err(Invalid::new("first"));
    let second = |_: &Message| -> Result<(), Invalid> { panic!("never asked") };
    let all: [&dyn Validator; 3] = [&sees_the_body, &first, &second];
    let Err(Refusal::Invalid(failure)) = gate(&attempts(3), &delivered(1), NOW, &all) else {
        panic!("it was refused");
    };
    assert_eq!(failure.error, "first");
}

#[test]
fn a_message_that_was_delivered_too_often_is_not_even_validated() {
    let never = |_: &Message| -> Result<(), Invalid> { panic!("never asked") };
    let mut delivery = delivered(4);
    delivery.message.deadline_at = Some(Timestamp::from_millis(0));
    let refused = gate(&attempts(3), &delivery, NOW, &[&never]);
    assert_eq!(refused, Err(Refusal::TooManyDeliveries { count: 4, limit: 3 }));
}
