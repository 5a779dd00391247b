//! What travels comes back as it was.

use std::time::Duration;

use serde_json::json;
use sickbay_core::breaker::BreakerPolicy;
use sickbay_core::classify::Rule;
use sickbay_core::decide::{Decision, SetAside};
use sickbay_core::policy::{Backoff, RetryOverride, RetryPolicy};
use sickbay_core::signature::GroupingRule;
use sickbay_core::{
    Failure, Kind, LeaseToken, MessageId, NewMessage, Priority, QueueName, QueuePolicy, Settlement,
};
use sickbay_core::{Reason, Stages, Timestamp};
use sickbay_server::wire::exchange::{Adoption, Decided};
use sickbay_server::wire::policy::Policy;
use sickbay_server::wire::quarantine::Filter;
use sickbay_server::wire::{Problem, message};

fn travel<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

fn message() -> NewMessage {
    let mut message = NewMessage::new(QueueName::new("q").unwrap(), &b"\0\xff"[..])
        .message_type("T".try_into().unwrap())
        .stream("s".try_into().unwrap())
        .key("k".try_into().unwrap())
        .priority(Priority::new(0).unwrap())
        .delay(Duration::MAX)
        .deadline(Duration::from_nanos(1))
        .header("a", "\0")
        .header("a", "2");
    message.stages = Stages::from_bits(u16::MAX);
    message
}

#[test]
fn a_message_loses_nothing() {
    let wire: message::NewMessage = travel(&message().into());
    assert_eq!(wire.into_core(None).unwrap(), message());
    let plain = NewMessage::new(QueueName::new("q").unwrap(), "");
    let text = serde_json::to_string(&message::NewMessage::from(plain.clone())).unwrap();
    assert_eq!(text, r#"{"queue":"q","payload":""}"#, "defaults do not travel");
    assert_eq!(serde_json::from_str::<message::NewMessage>(&text).unwrap().into_core(None).unwrap(), plain);
}

#[test]
fn a_policy_loses_nothing() {
    let policy = QueuePolicy {
        retry: RetryPolicy { jitter: 0.1 + 0.2, ..RetryPolicy::exponential(7, Duration::from_millis(1500)) },
        overrides: vec![RetryOverride {
            message_type: Some("T".try_into().unwrap()),
            reason: Some(Reason::Crash),
            retry: RetryPolicy { backoff: Backoff::Cooldown(Duration::MAX), ..RetryPolicy::none() },
        }],
        classification: vec![Rule::new(Kind::Poison).text("x").regex("(?-i)Y").exit_code(-1).code("E*")],
        grouping: vec![GroupingRule::new("g $1", "a(b)").unwrap()],
        breaker: Some(BreakerPolicy::default()),
        ..QueuePolicy::default()
    };
    for policy in [policy, QueuePolicy::default()] {
        assert_eq!(QueuePolicy::from(travel(&Policy::from(policy.clone()))), policy);
    }
    assert_eq!(QueuePolicy::from(serde_json::from_str::<Policy>("{}").unwrap()), QueuePolicy::default());
    let text = serde_json::to_string(&Policy {
        retry: serde_json::from_value(json!({"jitter": "NaN"})).unwrap(),
        ..Policy::default()
    });
    assert!(QueuePolicy::from(serde_json::from_str::<Policy>(&text.unwrap()).unwrap()).retry.jitter.is_nan());
}

#[test]
fn settlements_and_adoptions_lose_nothing() {
    let token = LeaseToken { epoch: u64::MAX, claim: 0, message: MessageId::from_number(7).unwrap() };
    let mut failure = Failure::unknown("e\0").code("c").retry_after(Duration::from_nanos(3));
    failure.schema_path = Some("/a".to_owned());
    for decision in [
        Decision::Complete,
        Decision::Redeliver,
        Decision::Release { after: Duration::from_millis(1) },
        Decision::Retry { after: Duration::ZERO, failure: failure.clone() },
        Decision::Quarantine { set_aside: SetAside::CrashBudgetSpent, failure: failure.clone() },
    ] {
        let settlement = Settlement {
            stages: Stages::PUBLISHED,
            signature: Some("0123456789abc".parse().unwrap()),
            ran: Some(Duration::MAX),
            output: Some("o".to_owned()),
            cascade: true,
            ..Settlement::new(token, decision.clone())
        };
        let shown = format!("{settlement:?}");
        assert_eq!(format!("{:?}", Settlement::from(travel(&Decided::from(settlement)))), shown);
        let adoption = sickbay_core::port::Adoption {
            message: message(),
            origin: "o".to_owned(),
            counters: sickbay_core::Counters { deliveries: 1, earlier: u32::MAX, ..Default::default() },
            started_at: Timestamp::NEVER,
            worker: "w".to_owned(),
            decision,
            signature: None,
            stages: Stages::NONE,
        };
        let shown = format!("{adoption:?}");
        assert_eq!(format!("{:?}", travel(&Adoption::from(adoption)).into_core().unwrap()), shown);
    }
}

#[test]
fn a_filter_is_empty_until_it_asks_for_something() {
    assert!(Filter::default().is_empty());
    assert!(Filter { discarded: true, ..Filter::default() }.is_empty());
    assert!(!Filter { kind: Some(Kind::Poison), ..Filter::default() }.is_empty());
}

#[test]
fn a_problem_is_told_as_the_standard_says() {
    let problem = Problem::new(sickbay_core::ErrorKind::NotFound, "SB0001", "there is no queue \"x\"");
    assert_eq!(
        serde_json::to_value(&problem).unwrap(),
        json!({"type": "urn:sickbay:SB0001", "code": "SB0001", "title": "there is no such thing", "status": 404,
            "detail": "there is no queue \"x\"", "hint": "sickbay explain SB0001", "reaction": "not_found"})
    );
    assert_eq!(problem.to_string(), "there is no queue \"x\" (SB0001)");
}
