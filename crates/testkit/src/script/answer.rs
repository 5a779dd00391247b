//! How answers are written down.

use std::time::Duration;

use sickbay_core::clock::Timestamp;
use sickbay_core::delivery::Counters;
use sickbay_core::port::Replayed;
use sickbay_core::quarantine::{Attempt, DeadLetter, MessageView};
use sickbay_core::settlement::Settled;
use sickbay_core::stats::QueueStats;
use sickbay_core::{Delivery, Reason, Stages};

/// Joins what there is, or says `nothing`.
pub(super) fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    if items.is_empty() { "nothing".to_owned() } else { items.join(", ") }
}

/// `30s`, or `1500ms` where it is no whole second.
pub(super) fn duration(wait: Duration) -> String {
    match wait.as_millis() {
        millis if millis % 1000 == 0 => format!("{}s", millis / 1000),
        millis => format!("{millis}ms"),
    }
}

/// When something is, seen from now.
pub(super) fn time(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", duration(at.since(now)))
    } else {
        format!("{} ago", duration(now.since(at)))
    }
}

pub(super) fn delivery(name: &str, delivery: &Delivery) -> String {
    let alone = if delivery.suspect { " alone" } else { "" };
    format!("{name} attempt {}{alone}", delivery.counters.attempt_number())
}

/// Everything a worker sees of a delivery.
pub(super) fn delivery_in_full(name: &str, d: &Delivery, now: Timestamp) -> String {
    format!(
        "{} {} {:?} {} {:?} {} expires {}",
        delivery(name, d),
        counters(&d.counters),
        d.cause,
        d.stages,
        d.message,
        d.message.payload.len(),
        time(d.lease.expires_at, now),
    )
}

pub(super) fn settled(settled: &Settled) -> String {
    match settled {
        Settled::Applied => "ok".to_owned(),
        Settled::LeaseLost => "lease lost".to_owned(),
        Settled::EffectFailed { .. } => "effect failed".to_owned(),
    }
}

pub(super) fn replayed(answer: &Replayed) -> String {
    match answer {
        Replayed::Done => "ok".to_owned(),
        Replayed::NotFound => "not found".to_owned(),
        Replayed::Refused { .. } => "refused".to_owned(),
    }
}

/// The counters that are not zero.
pub(super) fn counters(counters: &Counters) -> String {
    let all = [
        ("deliveries", counters.deliveries),
        ("failures", counters.failures),
        ("crashes", counters.crashes),
        ("charges", counters.charges),
        ("releases", counters.releases),
        ("expiries", counters.expiries),
        ("replays", counters.replays),
        ("earlier", counters.earlier),
    ];
    let counted: Vec<String> =
        all.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    counted.join(", ")
}

/// A message as `show` tells it: status, when it is due, counters, and what is special about it.
pub(super) fn view(view: &MessageView, now: Timestamp) -> String {
    let mut parts = vec![view.status.as_str().to_owned()];
    if let Some(dead) = &view.dead {
        parts[0] = format!("{} {} {}", parts[0], dead.set_aside.as_str(), dead.reason);
    }
    if let Some(due_at) = view.due_at.filter(|due_at| *due_at > now) {
        parts[0] = format!("{} due {}", parts[0], time(due_at, now));
    }
    parts.push(counters(&view.counters));
    parts.extend(view.cause.map(|cause| format!("cause {}", cause.as_str())));
    parts.extend(view.suspect.then(|| "suspect".to_owned()));
    parts.extend((view.stages != Stages::NONE).then(|| format!("stages {}", view.stages)));
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

/// One row of the history.
pub(super) fn attempt(attempt: &Attempt, now: Timestamp) -> String {
    let failure = attempt.failure.as_ref().map(|failure| {
        // The words about a dead process are the store's own.
        let error = if failure.reason == Reason::Crash { "…" } else { &failure.error };
        format!(" {} {} {error}", failure.reason, failure.kind)
    });
    format!(
        "{} {:?} {}/{} by {:?}{} {:?}",
        attempt.number,
        attempt.end,
        time(attempt.started_at, now),
        time(attempt.ended_at, now),
        attempt.worker,
        failure.unwrap_or_default(),
        attempt.output,
    )
}

/// A row of the quarantine, without its signature where the words are the store's own.
pub(super) fn dead(name: &str, dead: &DeadLetter, now: Timestamp) -> String {
    let (error, signature) = match dead.reason {
        Reason::Crash => ("…", String::new()),
        _ => (dead.error.as_str(), dead.signature.to_string()),
    };
    format!(
        "{name} {} {} {} {:?} {:?} {} {} {error} {signature} pushed {} first {} last {} at {} {:?} {} bytes",
        dead.set_aside.as_str(),
        dead.reason,
        dead.kind,
        dead.message_type,
        dead.stream,
        dead.queue,
        counters(&dead.counters),
        time(dead.pushed_at, now),
        time(dead.first_failed_at, now),
        time(dead.last_failed_at, now),
        time(dead.quarantined_at, now),
        dead.discarded_at.map(|at| time(at, now)),
        dead.payload_bytes,
    )
}

/// The figures that are not zero.
pub(super) fn stats(stats: &QueueStats, now: Timestamp) -> String {
    let all = [
        ("pending", stats.pending),
        ("scheduled", stats.scheduled),
        ("failed", stats.failed),
        ("active", stats.active),
        ("dead", stats.dead),
        ("discarded", stats.discarded),
        ("pushed", stats.pushed),
        ("completed", stats.completed),
        ("duplicates", stats.duplicates),
        ("failures", stats.failures),
        ("quarantined", stats.quarantined),
        ("replayed", stats.replayed),
        ("removed", stats.removed),
        ("candidates", stats.poison_candidates),
    ];
    let mut parts: Vec<String> =
        all.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    parts.extend(stats.next_due_at.map(|at| format!("next {}", time(at, now))));
    parts.extend(stats.latest_due_at.map(|at| format!("latest {}", time(at, now))));
    parts.extend(stats.retry_counts.iter().map(|(failures, n)| format!("{n} failed {failures} times")));
    parts.extend(stats.reasons.iter().map(|(reason, n)| format!("{n} {reason}")));
    parts.extend(stats.paused.then(|| "paused".to_owned()));
    parts.extend(stats.paused_types.iter().map(|(name, gate)| format!("{name} {gate:?}")));
    parts.extend((!stats.adds_up()).then(|| "DOES NOT ADD UP".to_owned()));
    list(parts)
}
