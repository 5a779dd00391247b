//! The decision table of routing (A8), a named row for each case, and the promise that a message is
//! poison after exactly N.

use std::time::Duration;

use proptest::prelude::*;
use sickbay_core::decide::{Decision, Facts, Outcome, SetAside, decide};
use sickbay_core::gate::Refusal;
use sickbay_core::policy::{RetryOverride, RetryPolicy};
use sickbay_core::{Counters, Failure, Kind, MessageId, MessageType, QueuePolicy, Reason};

const PAUSE: Duration = Duration::from_secs(7);

fn attempts(attempts: u32) -> QueuePolicy {
    QueuePolicy::with_retry(RetryPolicy::cooldown(attempts, PAUSE))
}

/// The counters during a delivery after so many failures.
fn after(failures: u32) -> Counters {
    Counters { deliveries: failures + 1, failures, ..Counters::default() }
}

fn decide_for(
    policy: &QueuePolicy,
    message_type: Option<&str>,
    counters: Counters,
    outcome: Outcome,
) -> Decision {
    let message_type = message_type.map(|name| MessageType::new(name).unwrap());
    let id = MessageId::from_number(7).unwrap();
    decide(policy, Facts { id, message_type: message_type.as_ref(), counters }, outcome)
}

/// A decision without the failure it carries, for tables.
#[derive(Debug, PartialEq)]
enum Short {
    Complete,
    Retry(Duration),
    Release(Duration),
    Redeliver,
    SetAside(SetAside, Kind, Reason),
}

fn short(decision: Decision) -> Short {
    match decision {
        Decision::Complete => Short::Complete,
        Decision::Retry { after, .. } => Short::Retry(after),
        Decision::Release { after } => Short::Release(after),
        Decision::Redeliver => Short::Redeliver,
        Decision::Quarantine { set_aside, failure } => {
            Short::SetAside(set_aside, failure.kind, failure.reason)
        }
    }
}

use Kind::{Poison, Transient, Unknown};
use Reason::{Crash, DependencyFailure, Expired, HandlerException, TransportUnavailable, ValidationFailure};
use SetAside::{
    CrashBudgetSpent, DeadlinePassed, MaxDeliveryCountExceeded, NonRetryableError, PoisonMessage,
};

fn failed(kind: Kind) -> Outcome {
    Outcome::Failed(Failure::new(kind, HandlerException, "boom"))
}

fn check(rows: Vec<(&str, QueuePolicy, Counters, Outcome, Short)>) {
    for (name, policy, counters, outcome, expected) in rows {
        assert_eq!(short(decide_for(&policy, Some("Order"), counters, outcome)), expected, "{name}");
    }
}

#[test]
fn the_routing_matrix_holds_row_by_row() {
    let refused = |count, limit| Outcome::Refused(Refusal::TooManyDeliveries { count, limit });
    let exceeded = |kind| Short::SetAside(MaxDeliveryCountExceeded, kind, HandlerException);
    let hopeless = Short::SetAside(NonRetryableError, Poison, HandlerException);
    let hopeless_again = Short::SetAside(NonRetryableError, Poison, HandlerException);
    let too_many = Short::SetAside(PoisonMessage, Poison, Reason::PoisonMessage);
    check(vec![
        ("success at once", attempts(3), after(0), Outcome::Done, Short::Complete),
        ("success at the limit", attempts(3), after(2), Outcome::Done, Short::Complete),
        ("success beyond any count", attempts(3), after(99), Outcome::Done, Short::Complete),
        ("delivered above the limit", attempts(3), after(3), refused(4, 3), too_many),
        ("not retryable at once", attempts(3), after(0), failed(Poison), hopeless),
        ("not retryable at the limit", attempts(3), after(2), failed(Poison), hopeless_again),
        ("retryable, first of three", attempts(3), after(0), failed(Transient), Short::Retry(PAUSE)),
        ("retryable, second of three", attempts(3), after(1), failed(Transient), Short::Retry(PAUSE)),
        ("retryable, third of three", attempts(3), after(2), failed(Transient), exceeded(Transient)),
        ("retryable above the limit", attempts(3), after(9), failed(Transient), exceeded(Transient)),
        ("unknown below the limit", attempts(3), after(1), failed(Unknown), Short::Retry(PAUSE)),
        ("unknown at the limit is poison", attempts(3), after(2), failed(Unknown), exceeded(Poison)),
    ]);
}

#[test]
fn without_retries_the_first_failure_is_the_last() {
    let exceeded = |kind| Short::SetAside(MaxDeliveryCountExceeded, kind, HandlerException);
    check(vec![
        ("no attempts", attempts(0), after(0), failed(Transient), exceeded(Transient)),
        ("one attempt", attempts(1), after(0), failed(Transient), exceeded(Transient)),
        ("two attempts", attempts(2), after(0), failed(Transient), Short::Retry(PAUSE)),
        ("no retry block", QueuePolicy::default(), after(0), failed(Unknown), exceeded(Poison)),
        ("no retries, but success", attempts(0), after(0), Outcome::Done, Short::Complete),
    ]);
}

#[test]
fn what_the_gate_refuses_says_why_it_was_set_aside() {
    let invalid = Failure::new(Poison, ValidationFailure, "total is missing");
    let late = Refusal::Expired { late_by: Duration::from_millis(1) };
    check(vec![
        (
            "a validator said no",
            attempts(9),
            after(0),
            Outcome::Refused(Refusal::Invalid(invalid)),
            Short::SetAside(NonRetryableError, Poison, ValidationFailure),
        ),
        (
            "too late",
            attempts(9),
            after(0),
            Outcome::Refused(late),
            Short::SetAside(DeadlinePassed, Poison, Expired),
        ),
    ]);
}

#[test]
fn what_did_not_run_is_given_back_and_not_judged() {
    let spent = Counters { deliveries: 40, releases: 30, crashes: 2, charges: 2, failures: 7, ..after(0) };
    check(vec![
        ("deferred", attempts(1), after(0), Outcome::Deferred(PAUSE), Short::Release(PAUSE)),
        (
            "deferred, with much behind it",
            attempts(1),
            spent,
            Outcome::Deferred(PAUSE),
            Short::Release(PAUSE),
        ),
        ("not run", attempts(1), after(0), Outcome::NotRun, Short::Release(Duration::ZERO)),
        ("not run, with much behind it", attempts(0), spent, Outcome::NotRun, Short::Release(Duration::ZERO)),
        ("lease expired", attempts(1), after(0), Outcome::LeaseExpired, Short::Redeliver),
    ]);
}

#[test]
fn crashes_have_a_budget_of_their_own() {
    let crash = |alone| Outcome::Crashed { alone, evidence: "signal 9".to_owned() };
    let charged = |charges| Counters { deliveries: charges + 1, crashes: charges, charges, ..after(0) };
    let witness = Counters { deliveries: 101, crashes: 100, charges: 2, ..after(0) };
    let spent = || Short::SetAside(CrashBudgetSpent, Poison, Crash);
    let budget = |crash_budget| QueuePolicy { crash_budget, ..attempts(1) };
    check(vec![
        ("first crash alone", budget(3), charged(0), crash(true), Short::Redeliver),
        ("second crash alone", budget(3), charged(1), crash(true), Short::Redeliver),
        ("third crash alone", budget(3), charged(2), crash(true), spent()),
        ("above a lowered budget", budget(3), charged(8), crash(true), spent()),
        ("not alone, budget nearly spent", budget(3), charged(2), crash(false), Short::Redeliver),
        ("not alone, above a lowered budget", budget(3), charged(8), crash(false), Short::Redeliver),
        ("not alone, a hundred times", budget(3), witness, crash(false), Short::Redeliver),
        ("a budget of one", budget(1), charged(0), crash(true), spent()),
        ("a budget of none counts as one", budget(0), charged(0), crash(true), spent()),
        ("the default budget is three", attempts(1), charged(1), crash(true), Short::Redeliver),
        ("the default budget, spent", attempts(1), charged(2), crash(true), spent()),
        (
            "crashes do not use up attempts",
            QueuePolicy { crash_budget: 30, ..attempts(2) },
            charged(8),
            failed(Transient),
            Short::Retry(PAUSE),
        ),
    ]);
}

#[test]
fn the_evidence_of_a_crash_is_kept() {
    let outcome = Outcome::Crashed { alone: true, evidence: "signal 11 after 3 s".to_owned() };
    let policy = QueuePolicy { crash_budget: 1, ..attempts(5) };
    let Decision::Quarantine { failure, .. } = decide_for(&policy, None, after(0), outcome) else {
        panic!("a spent budget quarantines");
    };
    assert_eq!(failure.error, "signal 11 after 3 s");
}

#[test]
fn lost_leases_use_up_deliveries_and_the_last_failure_still_says_what_was_wrong() {
    let lost = |expiries, failures| Counters {
        deliveries: expiries + failures + 1,
        expiries,
        failures,
        ..Counters::default()
    };
    let exceeded = || Short::SetAside(MaxDeliveryCountExceeded, Transient, HandlerException);
    check(vec![
        ("second delivery of three", attempts(3), lost(1, 0), failed(Transient), Short::Retry(PAUSE)),
        ("third delivery, two lost", attempts(3), lost(2, 0), failed(Transient), exceeded()),
        ("third delivery, one lost", attempts(3), lost(1, 1), failed(Transient), exceeded()),
    ]);
}

fn override_for(message_type: Option<&str>, reason: Option<Reason>, attempts: u32) -> RetryOverride {
    let message_type = message_type.map(|name| MessageType::new(name).unwrap());
    RetryOverride { message_type, reason, retry: RetryPolicy::cooldown(attempts, PAUSE * attempts) }
}

#[test]
fn overrides_apply_by_type_and_reason_and_the_first_wins() {
    let policy = QueuePolicy {
        overrides: vec![
            override_for(Some("Mail"), Some(TransportUnavailable), 9),
            override_for(Some("Mail"), None, 2),
            override_for(None, Some(DependencyFailure), 5),
            override_for(Some("Mail"), None, 8),
        ],
        ..attempts(3)
    };
    let rows = [
        ("type and reason", Some("Mail"), TransportUnavailable, 9),
        ("type before reason, as listed", Some("Mail"), DependencyFailure, 2),
        ("reason of any type", Some("Order"), DependencyFailure, 5),
        ("reason without a type", None, DependencyFailure, 5),
        ("none fits", Some("Order"), TransportUnavailable, 3),
        ("none fits without a type", None, HandlerException, 3),
    ];
    for (name, message_type, reason, limit) in rows {
        let pause = if limit == 3 { PAUSE } else { PAUSE * limit };
        for failures in 0..limit {
            let outcome = Outcome::Failed(Failure::new(Transient, reason, "boom"));
            let decision = short(decide_for(&policy, message_type, after(failures), outcome));
            let last = failures + 1 == limit;
            let set_aside = Short::SetAside(MaxDeliveryCountExceeded, Transient, reason);
            assert_eq!(decision, if last { set_aside } else { Short::Retry(pause) }, "{name}, {failures}");
        }
    }
}

#[test]
fn an_override_can_forbid_retries_of_one_reason() {
    let policy =
        QueuePolicy { overrides: vec![override_for(None, Some(HandlerException), 0)], ..attempts(5) };
    let expected = Short::SetAside(MaxDeliveryCountExceeded, Poison, HandlerException);
    assert_eq!(short(decide_for(&policy, None, after(0), failed(Unknown))), expected);
}

#[test]
fn retry_after_is_honoured_and_costs_no_attempt_more_or_less() {
    let asked = |wait| Outcome::Failed(Failure::transient("busy").retry_after(wait));
    let days = Duration::from_secs(3 * 86_400);
    check(vec![
        ("sooner", attempts(3), after(0), asked(Duration::ZERO), Short::Retry(Duration::ZERO)),
        ("later than the cap", attempts(3), after(1), asked(days), Short::Retry(days)),
        (
            "but not beyond the limit",
            attempts(3),
            after(2),
            asked(PAUSE),
            Short::SetAside(MaxDeliveryCountExceeded, Transient, DependencyFailure),
        ),
    ]);
    let poison = Outcome::Failed(Failure::poison("no").retry_after(PAUSE));
    let expected = Short::SetAside(NonRetryableError, Poison, HandlerException);
    assert_eq!(short(decide_for(&attempts(3), None, after(0), poison)), expected);
}

#[test]
fn a_policy_edited_between_failures_takes_effect_at_the_next_one() {
    let before = attempts(5);
    assert_eq!(short(decide_for(&before, None, after(1), failed(Transient))), Short::Retry(PAUSE));
    let lowered = attempts(3);
    let exceeded = Short::SetAside(MaxDeliveryCountExceeded, Transient, HandlerException);
    assert_eq!(short(decide_for(&lowered, None, after(2), failed(Transient))), exceeded);
    let raised = attempts(4);
    assert_eq!(short(decide_for(&raised, None, after(2), failed(Transient))), Short::Retry(PAUSE));
}

#[test]
fn the_same_question_has_the_same_answer_also_with_jitter() {
    let retry = RetryPolicy { jitter: 1.0, ..RetryPolicy::exponential(9, PAUSE) };
    let policy = QueuePolicy::with_retry(retry);
    let ask = || decide_for(&policy, Some("Order"), after(3), failed(Transient));
    assert_eq!(ask(), ask());
}

#[test]
fn counters_at_their_end_do_not_overflow() {
    let full = Counters {
        deliveries: u32::MAX,
        failures: u32::MAX,
        crashes: u32::MAX,
        charges: u32::MAX,
        releases: u32::MAX,
        expiries: u32::MAX,
        replays: u32::MAX,
        earlier: u32::MAX,
    };
    let exceeded = Short::SetAside(MaxDeliveryCountExceeded, Transient, HandlerException);
    assert_eq!(short(decide_for(&attempts(u32::MAX), None, full, failed(Transient))), exceeded);
    let crash = Outcome::Crashed { alone: true, evidence: String::new() };
    let spent = Short::SetAside(CrashBudgetSpent, Poison, Crash);
    assert_eq!(short(decide_for(&attempts(3), None, full, crash)), spent);
}

/// What can happen to a delivery that got past the gate.
#[derive(Clone, Copy, Debug)]
enum Event {
    Fails(Kind),
    IsReleased,
    IsDeferred,
    LosesItsLease,
    Crashes { alone: bool },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => prop_oneof![Just(Transient), Just(Unknown)].prop_map(Event::Fails),
        2 => Just(Event::IsReleased),
        1 => Just(Event::IsDeferred),
        1 => Just(Event::LosesItsLease),
        1 => any::<bool>().prop_map(|alone| Event::Crashes { alone }),
    ]
}

/// Lives through a script as a store would: counts at the claim, asks the gate, settles.
/// Answers how many events it took and how the message was set aside.
fn live(policy: &QueuePolicy, script: &[Event]) -> (usize, Option<SetAside>) {
    let mut counters = Counters::default();
    for (events, event) in script.iter().enumerate() {
        counters.deliveries += 1;
        let delivery = crate::gate::delivery(counters);
        let now = delivery.message.pushed_at;
        if let Err(refusal) = sickbay_core::gate::gate(policy, &delivery, now, &[]) {
            let decision = decide_for(policy, None, counters, Outcome::Refused(refusal));
            let Decision::Quarantine { set_aside, .. } = decision else { panic!("{decision:?}") };
            return (events, Some(set_aside));
        }
        let outcome = match *event {
            Event::Fails(kind) => failed(kind),
            Event::IsReleased => Outcome::NotRun,
            Event::IsDeferred => Outcome::Deferred(PAUSE),
            Event::LosesItsLease => Outcome::LeaseExpired,
            Event::Crashes { alone } => Outcome::Crashed { alone, evidence: String::new() },
        };
        match decide_for(policy, None, counters, outcome) {
            Decision::Quarantine { set_aside, .. } => return (events + 1, Some(set_aside)),
            Decision::Retry { .. } => counters.failures += 1,
            Decision::Release { .. } => counters.releases += 1,
            Decision::Redeliver => match *event {
                Event::Crashes { alone } => {
                    counters.crashes += 1;
                    counters.charges += u32::from(alone);
                }
                _ => counters.expiries += 1,
            },
            Decision::Complete => panic!("nothing succeeded"),
        }
    }
    (script.len(), None)
}

/// What must come of a script, by counting alone.
fn expected(limit: u32, budget: u32, script: &[Event]) -> (usize, Option<SetAside>) {
    let (mut used, mut charges) = (0, 0);
    for (events, event) in script.iter().enumerate() {
        if used == limit {
            return (events, Some(PoisonMessage));
        }
        match event {
            Event::Fails(_) => used += 1,
            Event::LosesItsLease => used += 1,
            Event::Crashes { alone: true } => charges += 1,
            Event::IsReleased | Event::IsDeferred | Event::Crashes { alone: false } => {}
        }
        if charges == budget {
            return (events + 1, Some(CrashBudgetSpent));
        }
        if used == limit && matches!(event, Event::Fails(_)) {
            return (events + 1, Some(MaxDeliveryCountExceeded));
        }
    }
    (script.len(), None)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_message_is_poison_after_exactly_n_whatever_happens_in_between(
        limit in 0u32..12,
        budget in 0u32..6,
        script in prop::collection::vec(event(), 0..80),
    ) {
        let policy = QueuePolicy { crash_budget: budget, ..attempts(limit) };
        prop_assert_eq!(live(&policy, &script), expected(limit.max(1), budget.max(1), &script));
    }

    #[test]
    fn releases_and_crashes_of_others_never_bring_the_end_nearer(limit in 1u32..12, idle in 0usize..200) {
        let harmless = [Event::IsReleased, Event::IsDeferred, Event::Crashes { alone: false }];
        let mut script: Vec<Event> = harmless.iter().copied().cycle().take(idle).collect();
        prop_assert_eq!(live(&attempts(limit), &script), (idle, None));
        script.extend(vec![Event::Fails(Transient); limit as usize]);
        let end = (idle + limit as usize, Some(MaxDeliveryCountExceeded));
        prop_assert_eq!(live(&attempts(limit), &script), end);
    }
}
