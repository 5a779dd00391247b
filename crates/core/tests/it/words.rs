//! The small words that everything else is said in: counts, names, times, texts.

use std::collections::BTreeSet;
use std::time::Duration;

use sickbay_core::classify::RawError;
use sickbay_core::decide::SetAside;
use sickbay_core::id::IdPrefix;
use sickbay_core::message::Status;
use sickbay_core::policy::RetryPolicy;
use sickbay_core::port::{Claim, Exchange, ORIGIN_WINDOW, ProcessId};
use sickbay_core::record::RecordKind;
use sickbay_core::stats::QueueStats;
use sickbay_core::text::{ERROR_BYTES_MAX, OUTPUT_BYTES_MAX, clean_error, clean_output, cleaned_error};
use sickbay_core::verdict::Effect;
use sickbay_core::{
    Cause, Counters, Failure, LeaseToken, MessageId, Priority, QueueName, Reason, Settlement, Stages,
    Timestamp, WorkerName,
};

fn id(number: u64) -> MessageId {
    MessageId::from_number(number).unwrap()
}

#[test]
fn every_message_ever_pushed_is_counted_in_exactly_one_place() {
    let whole = QueueStats {
        pending: 2,
        scheduled: 3,
        failed: 5,
        active: 7,
        dead: 11,
        discarded: 13,
        completed: 17,
        removed: 19,
        pushed: 77,
        ..QueueStats::default()
    };
    assert!(whole.adds_up());
    let one_more: [fn(&mut QueueStats); 9] = [
        |stats| stats.pending += 1,
        |stats| stats.scheduled += 1,
        |stats| stats.failed += 1,
        |stats| stats.active += 1,
        |stats| stats.dead += 1,
        |stats| stats.discarded += 1,
        |stats| stats.completed += 1,
        |stats| stats.removed += 1,
        |stats| stats.pushed += 1,
    ];
    for change in one_more {
        let mut stats = whole.clone();
        change(&mut stats);
        assert!(!stats.adds_up(), "{stats:?}");
    }
}

#[test]
fn dead_letters_are_counted_by_their_reason() {
    let mut stats = QueueStats::default();
    stats.reasons.insert(Reason::Crash.as_str().to_owned(), 7);
    assert_eq!((stats.dead_for(Reason::Crash), stats.dead_for(Reason::Corrupt)), (7, 0));
}

#[test]
fn a_replay_is_counted_and_keeps_the_number_of_earlier_deliveries() {
    let before = Counters { deliveries: 3, failures: 2, replays: 4, earlier: 10, ..Counters::default() };
    let after = before.replayed();
    assert_eq!(after, Counters { replays: 5, earlier: 13, ..Counters::default() });
    assert!(after.is_untouched() && !before.is_untouched());
}

#[test]
fn the_words_that_people_see_name_each_thing_once() {
    let statuses = [
        Status::Pending,
        Status::Scheduled,
        Status::Active,
        Status::Completed,
        Status::Failed,
        Status::Dead,
        Status::Discarded,
    ];
    let words = statuses.map(Status::as_str);
    assert_eq!(words, ["pending", "scheduled", "active", "completed", "failed", "dead", "discarded"]);
    let causes = [Cause::Failed, Cause::Crashed, Cause::LeaseExpired, Cause::Released, Cause::Replayed];
    let words = causes.map(Cause::as_str);
    assert_eq!(words, ["failed", "crashed", "lease expired", "released", "replayed"]);
    assert_eq!(SetAside::CrashBudgetSpent.as_str(), "CrashBudgetSpent");
    assert_eq!(SetAside::Operator.as_str(), "Operator");
    let failure = Failure::transient("no route");
    assert_eq!(failure.to_string(), format!("{} (transient): no route", failure.reason));
    assert_eq!(format!("{:?}", Stages::STORED), Stages::STORED.to_string());
    assert_ne!(Stages::STORED.to_string(), "");
    assert_eq!(format!("{:?}", id(7)), format!("{}#7", id(7)));
    assert_eq!(id(7).short(), id(7).to_string()[..8]);
}

#[test]
fn a_priority_is_one_of_ten() {
    for priority in 0..10 {
        let checked = Priority::try_from(priority).unwrap();
        assert_eq!((checked.get(), u8::from(checked)), (priority, priority));
    }
    assert_eq!(Priority::try_from(10).unwrap_err(), "priority 10 is above 9");
}

#[test]
fn about_as_many_ids_begin_with_a_prefix_as_it_leaves_open() {
    let prefix: IdPrefix = id(7).to_string()[..2].parse().unwrap();
    assert_eq!(prefix.candidates(10_239), 10, "1,024 prefixes of two characters");
    let whole: IdPrefix = id(7).to_string().parse().unwrap();
    assert_eq!(whole.candidates(1_000_000), 1);
}

#[test]
fn times_are_shown_as_the_calendar_has_them() {
    let shown = |days: i64| Timestamp::from_millis(days * 86_400_000).to_string()[..10].to_owned();
    // The last day of a four-century era, leap days, and the days beside them.
    for (days, date) in [
        (-1, "1969-12-31"),
        (11_016, "2000-02-29"),
        (11_017, "2000-03-01"),
        (47_540, "2100-02-28"),
        (47_541, "2100-03-01"),
        (84_064, "2200-02-28"),
        (120_588, "2300-02-28"),
        (157_112, "2400-02-28"),
        (157_113, "2400-02-29"),
        (157_114, "2400-03-01"),
        (-135_081, "1600-02-29"),
        (-135_080, "1600-03-01"),
    ] {
        assert_eq!(shown(days), date);
    }
    assert_eq!(Timestamp::from_millis(1234).millis(), 1234);
    assert_eq!(ORIGIN_WINDOW, Duration::from_secs(604_800));
}

#[test]
fn what_is_plain_is_not_copied_and_what_is_too_long_is_cut() {
    for plain in ["it broke\n\tat line 3", "", "~ !"] {
        assert!(matches!(cleaned_error(plain), std::borrow::Cow::Borrowed(text) if text == plain));
    }
    for odd in ["bell \u{7}", "delete \u{7f}", "carriage\rreturn", "grün"] {
        assert_eq!(cleaned_error(odd), clean_error(odd));
        assert!(matches!(cleaned_error(odd), std::borrow::Cow::Owned(_)));
    }
    assert_eq!((ERROR_BYTES_MAX, OUTPUT_BYTES_MAX), (65_536, 8_192));
    let room = "x".repeat(ERROR_BYTES_MAX - 10);
    assert!(matches!(cleaned_error(&room), std::borrow::Cow::Borrowed(_)));
    let kept = "x".repeat(ERROR_BYTES_MAX - 9);
    assert_eq!(cleaned_error(&kept), kept.as_str(), "one more byte still fits");
    let long = "x".repeat(ERROR_BYTES_MAX + 100);
    assert_eq!(cleaned_error(&long), format!("{kept}… (109 more bytes)"));
}

#[test]
fn of_a_long_output_the_end_is_kept_whole_even_if_all_of_it_is_hostile() {
    assert_eq!(clean_output(b"done\n"), "done\n");
    let long = [vec![b'a'; 5], vec![b'b'; OUTPUT_BYTES_MAX]].concat();
    assert_eq!(clean_output(&long), "b".repeat(OUTPUT_BYTES_MAX));
    let hostile = vec![0u8; OUTPUT_BYTES_MAX / 2];
    assert_eq!(clean_output(&hostile), "\\u{0}".repeat(OUTPUT_BYTES_MAX / 2));
}

#[test]
fn an_exchange_settles_or_claims_as_it_says() {
    let token = LeaseToken { epoch: 1, claim: 2, message: id(3) };
    let settles = Exchange::settle(vec![Settlement::complete(token)]);
    assert_eq!(settles.settlements.iter().map(|one| one.token).collect::<Vec<_>>(), [token]);
    assert!(settles.claim.is_none());
    let claim = Claim {
        queue: QueueName::new("mail").unwrap(),
        worker: WorkerName::new("w").unwrap(),
        process: ProcessId(1),
        max: 9,
        wait: Duration::ZERO,
        lease: Duration::from_secs(1),
    };
    let claims = Exchange::claim(claim);
    assert!(claims.settlements.is_empty());
    assert_eq!(claims.claim.map(|claim| claim.max), Some(9));
}

#[test]
fn an_effect_belongs_to_the_store_that_made_it() {
    let effect = Effect::new(7u32);
    assert!(effect.is::<u32>() && !effect.is::<u64>());
    assert_eq!(format!("{effect:?}"), "Effect");
    assert_eq!(effect.take::<u64>().unwrap_err().take::<u32>().unwrap(), 7);
}

#[test]
fn a_raw_error_is_its_text() {
    assert_eq!(RawError::from("no route").to_string(), "no route");
    assert_eq!(RawError::from("no route".to_owned()).text, "no route");
}

#[test]
fn a_retry_policy_tries_as_often_as_it_was_told() {
    assert_eq!(RetryPolicy::exponential(7, Duration::from_secs(1)).attempts, 7);
    assert_eq!(RetryPolicy::cooldown(6, Duration::from_secs(1)).attempts, 6);
}

#[test]
fn the_longest_name_is_as_long_as_it_says() {
    let longest = |length: usize| QueueName::new("x".repeat(length));
    let limit = (1..10_000).take_while(|length| longest(*length).is_ok()).last().unwrap();
    let refused = longest(limit + 1).unwrap_err().to_string();
    assert!(refused.contains(&format!("at most {limit} are allowed")), "{refused}");
}

#[test]
fn why_something_was_set_aside_is_found_by_the_word_that_people_see() {
    for known in SetAside::ALL {
        assert_eq!(SetAside::from_word(known.as_str()), Some(known));
    }
    assert_eq!(SetAside::from_word("because"), None);
}

#[test]
fn kinds_of_records_follow_each_other_to_the_last_and_each_has_a_word_of_its_own() {
    let mut seen = vec![RecordKind::ALL[0]];
    while let Some(next) = seen[seen.len() - 1].next() {
        seen.push(next);
        assert!(seen.len() <= RecordKind::ALL.len(), "{seen:?}");
    }
    assert_eq!(seen, RecordKind::ALL);
    let words: BTreeSet<&str> = seen.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(words.len(), seen.len());
    assert!(words.contains("dead letters") && words.iter().all(|word| word.ends_with('s')), "{words:?}");
}
