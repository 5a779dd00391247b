//! The circuit breaker (A14).

use std::time::Duration;

use proptest::prelude::*;
use sickbay_core::breaker::{Breaker, BreakerPolicy, BreakerState, Change, CountBy};
use sickbay_core::signature::Signature;
use sickbay_core::stats::TypeGate;
use sickbay_core::{MessageType, Timestamp};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn order() -> MessageType {
    MessageType::new("Order").unwrap()
}

fn mail() -> MessageType {
    MessageType::new("Mail").unwrap()
}

const SAME: Signature = Signature::from_bits(1);
const OTHER: Signature = Signature::from_bits(2);

fn more_than(failures_per_minute: u32) -> BreakerPolicy {
    BreakerPolicy { failures_per_minute, ..BreakerPolicy::default() }
}

fn gate(change: Option<Change>) -> Option<TypeGate> {
    change.map(|change| change.gate)
}

/// A breaker that was tripped by one failure at this time.
fn tripped(policy: &BreakerPolicy, millis: i64) -> Breaker {
    let mut breaker = Breaker::new();
    let policy = BreakerPolicy { failures_per_minute: 0, ..policy.clone() };
    assert_eq!(gate(breaker.on_failure(&policy, at(millis), &order(), SAME)), Some(TypeGate::Tripped));
    breaker
}

#[test]
fn the_limit_itself_does_not_trip_and_one_more_within_the_minute_does() {
    let policy = more_than(30);
    let mut breaker = Breaker::new();
    for n in 0..30 {
        assert_eq!(breaker.on_failure(&policy, at(n * 100), &order(), SAME), None);
    }
    let change = breaker.on_failure(&policy, at(59_999), &order(), SAME).unwrap();
    assert_eq!((change.message_type, change.gate), (order(), TypeGate::Tripped));
    let why = "more than 30 failures of signature 0000000000001 within a minute; paused until 1970-01-01T00:01:29.999Z";
    assert_eq!(change.why, why);
    let (since, until) = (at(59_999), at(89_999));
    assert_eq!(breaker.state(&order()), BreakerState::Open { since, until, signature: SAME });
}

#[test]
fn a_failure_is_forgotten_after_exactly_a_minute() {
    let policy = more_than(2);
    for (third, expected) in [(59_999, Some(TypeGate::Tripped)), (60_000, None)] {
        let mut breaker = Breaker::new();
        assert_eq!(breaker.on_failure(&policy, at(0), &order(), SAME), None);
        assert_eq!(breaker.on_failure(&policy, at(1), &order(), SAME), None);
        assert_eq!(gate(breaker.on_failure(&policy, at(third), &order(), SAME)), expected, "{third}");
    }
}

#[test]
fn a_clock_that_steps_back_makes_it_forget_nothing() {
    let policy = more_than(2);
    let mut breaker = Breaker::new();
    assert_eq!(breaker.on_failure(&policy, at(60_000), &order(), SAME), None);
    assert_eq!(breaker.on_failure(&policy, at(0), &order(), SAME), None);
    assert_eq!(
        gate(breaker.on_failure(&policy, at(61_000), &order(), SAME)),
        Some(TypeGate::Tripped),
        "all three came within a minute"
    );
}

#[test]
fn signatures_are_counted_apart_unless_the_policy_counts_by_type() {
    let policy = more_than(1);
    let mut breaker = Breaker::new();
    assert_eq!(breaker.on_failure(&policy, at(0), &order(), SAME), None);
    assert_eq!(breaker.on_failure(&policy, at(0), &order(), OTHER), None);
    assert_eq!(breaker.on_failure(&policy, at(0), &mail(), SAME), None, "types are always counted apart");

    let by_type = BreakerPolicy { by: CountBy::Type, ..policy };
    let mut breaker = Breaker::new();
    assert_eq!(breaker.on_failure(&by_type, at(0), &order(), SAME), None);
    assert_eq!(breaker.on_failure(&by_type, at(0), &mail(), SAME), None);
    let change = breaker.on_failure(&by_type, at(0), &order(), OTHER).unwrap();
    assert!(change.why.starts_with("more than 1 failures of this type within a minute"), "{}", change.why);
    assert_eq!(breaker.state(&mail()), BreakerState::Closed);
}

#[test]
fn a_limit_of_none_trips_at_the_first_failure() {
    let mut breaker = Breaker::new();
    assert_eq!(gate(breaker.on_failure(&more_than(0), at(0), &order(), SAME)), Some(TypeGate::Tripped));
}

#[test]
fn after_the_cool_down_it_probes_and_a_success_closes_it() {
    let policy = BreakerPolicy { probes: 3, ..BreakerPolicy::default() };
    let mut breaker = tripped(&policy, 0);
    assert_eq!(breaker.next_at(), Some(at(30_000)));
    assert_eq!(breaker.on_time(at(29_999)), []);
    let changes = breaker.on_time(at(30_000));
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].gate, TypeGate::Probing { left: 3 });
    assert_eq!(breaker.on_time(at(30_000)), [], "said once");
    let change = breaker.on_success(&order()).unwrap();
    assert_eq!((change.gate, change.why.as_str()), (TypeGate::Open, "a probe succeeded"));
    assert_eq!((breaker.state(&order()), breaker.next_at()), (BreakerState::Closed, None));
}

#[test]
fn each_failed_probe_doubles_the_cool_down_up_to_ten_minutes() {
    let policy = BreakerPolicy::default();
    let mut breaker = tripped(&policy, 0);
    let mut now = at(0);
    for seconds in [30, 60, 120, 240, 480, 600, 600] {
        let BreakerState::Open { since, until, .. } = breaker.state(&order()) else { panic!("it is open") };
        assert_eq!((since, until), (now, now.plus(Duration::from_secs(seconds))));
        assert_eq!(breaker.on_time(until).len(), 1);
        now = until.plus(Duration::from_millis(7));
        assert_eq!(gate(breaker.on_failure(&policy, now, &order(), OTHER)), Some(TypeGate::Tripped));
    }
}

#[test]
fn a_success_makes_the_next_cool_down_short_again() {
    let policy = more_than(0);
    let mut breaker = tripped(&policy, 0);
    breaker.on_time(at(30_000));
    breaker.on_failure(&policy, at(30_000), &order(), SAME);
    breaker.on_time(at(90_000));
    breaker.on_success(&order());
    breaker.on_failure(&policy, at(100_000), &order(), SAME);
    assert_eq!(breaker.next_at(), Some(at(130_000)));
}

#[test]
fn a_cool_down_longer_than_the_cap_stays_as_long_as_it_is() {
    let hour = Duration::from_secs(3600);
    let policy = BreakerPolicy { cool_down: hour, ..BreakerPolicy::default() };
    let mut breaker = tripped(&policy, 0);
    breaker.on_time(at(3_600_000));
    breaker.on_failure(&policy, at(3_600_000), &order(), SAME);
    assert_eq!(breaker.next_at(), Some(at(3_600_000).plus(hour)));
}

#[test]
fn what_was_under_way_before_the_pause_changes_nothing() {
    let policy = more_than(0);
    let mut breaker = tripped(&policy, 0);
    let before = breaker.state(&order());
    assert_eq!(breaker.on_failure(&policy, at(20_000), &order(), SAME), None);
    assert_eq!(breaker.on_success(&order()), None);
    assert_eq!(breaker.state(&order()), before);
}

#[test]
fn probes_that_never_answer_are_replaced() {
    for (cool_down, wait) in [(Duration::from_secs(30), 30_000), (Duration::ZERO, 1_000)] {
        let policy = BreakerPolicy { cool_down, ..BreakerPolicy::default() };
        let mut breaker = tripped(&policy, 0);
        let start = breaker.next_at().unwrap();
        breaker.on_time(start);
        let again = start.plus(Duration::from_millis(wait));
        assert_eq!(breaker.next_at(), Some(again));
        let changes = breaker.on_time(again);
        assert_eq!(
            changes.iter().map(|change| change.gate).collect::<Vec<_>>(),
            [TypeGate::Probing { left: 1 }]
        );
        assert!(changes[0].why.starts_with("no probe has answered"));
    }
}

#[test]
fn it_closes_by_hand_and_begins_counting_anew() {
    let policy = more_than(1);
    let mut breaker = Breaker::new();
    breaker.on_failure(&policy, at(0), &order(), SAME);
    breaker.on_failure(&policy, at(0), &order(), SAME);
    let change = breaker.close(&order()).unwrap();
    assert_eq!((change.gate, change.why.as_str()), (TypeGate::Open, "closed by hand"));
    assert_eq!(breaker.close(&order()), None, "it is closed already");
    assert_eq!(breaker.on_failure(&policy, at(1), &order(), SAME), None);
    assert_eq!(gate(breaker.on_failure(&policy, at(1), &order(), SAME)), Some(TypeGate::Tripped));
}

#[test]
fn a_queue_that_no_longer_wants_a_breaker_gets_all_its_types_back() {
    let mut breaker = tripped(&BreakerPolicy::default(), 0);
    breaker.on_failure(&more_than(0), at(0), &mail(), SAME);
    let opened: Vec<_> =
        breaker.close_all().into_iter().map(|change| (change.message_type, change.gate)).collect();
    assert_eq!(opened, [(mail(), TypeGate::Open), (order(), TypeGate::Open)]);
    assert_eq!(breaker.next_at(), None);
}

#[test]
fn successes_between_failures_do_not_hide_them() {
    let policy = more_than(1);
    let mut breaker = Breaker::new();
    breaker.on_failure(&policy, at(0), &order(), SAME);
    assert_eq!(breaker.on_success(&order()), None);
    assert_eq!(gate(breaker.on_failure(&policy, at(1), &order(), SAME)), Some(TypeGate::Tripped));
}

#[test]
fn zero_probes_count_as_one() {
    let mut breaker = tripped(&BreakerPolicy { probes: 0, ..BreakerPolicy::default() }, 0);
    assert_eq!(breaker.on_time(at(30_000))[0].gate, TypeGate::Probing { left: 1 });
}

#[test]
fn the_policy_has_its_defaults_and_refuses_unknown_fields() {
    let policy: BreakerPolicy = serde_json::from_str("{}").unwrap();
    assert_eq!(policy, BreakerPolicy::default());
    assert_eq!((policy.failures_per_minute, policy.probes, policy.by), (30, 1, CountBy::Signature));
    assert_eq!(policy.cool_down, Duration::from_secs(30));
    assert!(serde_json::from_str::<BreakerPolicy>(r#"{"probe":1}"#).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_trips_exactly_when_a_count_by_hand_says_so(
        limit in 0u32..8,
        steps in prop::collection::vec((0i64..30_000, any::<bool>()), 1..60),
    ) {
        let policy = more_than(limit);
        let mut breaker = Breaker::new();
        let (mut now, mut seen) = (0i64, Vec::new());
        for (step, same) in steps {
            now += step;
            let signature = if same { SAME } else { OTHER };
            seen.push((now, signature));
            let in_window = seen.iter().filter(|(at, one)| now - at < 60_000 && *one == signature).count();
            let change = breaker.on_failure(&policy, at(now), &order(), signature);
            prop_assert_eq!(change.is_some(), in_window > limit as usize, "at {}", now);
            if change.is_some() {
                breaker.close(&order());
                seen.clear();
            }
        }
    }
}
