//! When a failed message is tried again (A7).

use std::time::Duration;

use proptest::prelude::*;
use sickbay_core::policy::{Backoff, RetryPolicy};
use sickbay_core::{MessageId, QueuePolicy};

fn id(number: u64) -> MessageId {
    MessageId::from_number(number).unwrap()
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

#[test]
fn the_default_backoff_doubles_from_one_minute_up_to_an_hour() {
    let retry = RetryPolicy::default();
    let table = [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60), (20, 60)];
    for (failures, expected) in table {
        assert_eq!(retry.backoff(id(7), failures), minutes(expected), "after {failures} failures");
    }
}

#[test]
fn a_cool_down_is_always_the_same_but_never_above_the_cap() {
    let retry = RetryPolicy::cooldown(5, Duration::from_secs(9));
    for failures in [1, 2, 10, u32::MAX] {
        assert_eq!(retry.backoff(id(7), failures), Duration::from_secs(9));
    }
    let capped = RetryPolicy { cap: Duration::from_secs(3), ..retry };
    assert_eq!(capped.backoff(id(7), 1), Duration::from_secs(3));
}

#[test]
fn the_backoff_saturates_at_the_cap_however_often_a_message_failed() {
    for base in [Duration::from_nanos(1), Duration::from_millis(1), Duration::from_secs(30), Duration::MAX] {
        let retry = RetryPolicy::exponential(u32::MAX, base);
        for failures in [100, 1_000_000, u32::MAX] {
            assert_eq!(retry.backoff(id(7), failures), minutes(60), "{base:?} {failures}");
        }
        let endless = RetryPolicy { cap: Duration::MAX, ..retry };
        assert_eq!(endless.backoff(id(7), u32::MAX), Duration::MAX);
    }
}

#[test]
fn a_base_of_nothing_stays_nothing() {
    let retry = RetryPolicy::exponential(u32::MAX, Duration::ZERO);
    for failures in [1, 31, 32, 1_000_000, u32::MAX] {
        assert_eq!(retry.backoff(id(7), failures), Duration::ZERO, "after {failures} failures");
    }
}

#[test]
fn jitter_spreads_messages_that_failed_together() {
    let retry = RetryPolicy { jitter: 0.5, ..RetryPolicy::default() };
    let mut waits: Vec<Duration> = (1..=1000).map(|n| retry.backoff(id(n), 3)).collect();
    let (least, most) = (waits.iter().min().copied(), waits.iter().max().copied());
    assert!(
        least < Some(Duration::from_secs(126)) && most > Some(Duration::from_secs(234)),
        "{least:?} {most:?}"
    );
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 990, "{} different waits", waits.len());
}

#[test]
fn a_jitter_that_is_no_share_is_harmless() {
    for (jitter, least) in [(f64::NAN, 60), (f64::INFINITY, 60), (-3.0, 60), (7.0, 0)] {
        let wait = RetryPolicy { jitter, ..RetryPolicy::default() }.backoff(id(7), 1);
        assert!((Duration::from_secs(least)..=minutes(1)).contains(&wait), "{jitter} {wait:?}");
    }
    let endless =
        RetryPolicy { jitter: 1e-20, cap: Duration::MAX, ..RetryPolicy::cooldown(2, Duration::MAX) };
    assert_eq!(endless.backoff(id(7), 1), Duration::MAX);
}

#[test]
fn no_retry_block_means_none_and_an_empty_one_the_defaults() {
    let none: QueuePolicy = serde_json::from_str("{}").unwrap();
    assert_eq!(none.retry.attempts_max(), 1);
    let defaults: QueuePolicy = serde_json::from_str(r#"{"retry":{}}"#).unwrap();
    assert_eq!(defaults.retry, RetryPolicy::default());
    assert_eq!(defaults.retry.attempts_max(), 5);
    assert_eq!(defaults.retry.backoff, Backoff::Exponential(Duration::from_secs(30)));
    assert!(serde_json::from_str::<QueuePolicy>(r#"{"retry":{"atempts":3}}"#).is_err());
}

#[test]
fn a_policy_survives_being_stored() {
    let json = r#"{
        "retry": {"attempts": 3, "jitter": 0.25},
        "overrides": [{"message_type": "Mail", "reason": "TransportUnavailable", "retry": {"attempts": 9}}],
        "classification": [{"text": "duplicate invoice", "kind": "poison"}, {"http_status": "5xx", "kind": "transient"}],
        "breaker": {"failures_per_minute": 5, "by": "type"}
    }"#;
    let policy: QueuePolicy = serde_json::from_str(json).unwrap();
    let again: QueuePolicy = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
    assert_eq!(again, policy);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn jitter_takes_at_most_its_share_and_always_the_same(
        number in 1u64..1 << 60,
        failures in any::<u32>(),
        jitter in 0.0f64..=1.0,
        base_ms in 0u64..10_000_000,
    ) {
        let plain = RetryPolicy::exponential(9, Duration::from_millis(base_ms));
        let jittered = RetryPolicy { jitter, ..plain };
        let (most, wait) = (plain.backoff(id(number), failures), jittered.backoff(id(number), failures));
        prop_assert_eq!(wait, jittered.backoff(id(number), failures));
        prop_assert!(wait <= most);
        prop_assert!(wait.as_secs_f64() >= most.as_secs_f64() * (1.0 - jitter) - 1e-6);
        prop_assert!(most <= plain.cap);
    }

    #[test]
    fn a_later_failure_never_waits_less(base_ms in 0u64..10_000_000, failures in 0u32..200) {
        let retry = RetryPolicy::exponential(9, Duration::from_millis(base_ms));
        prop_assert!(retry.backoff(id(1), failures) <= retry.backoff(id(1), failures + 1));
    }
}
