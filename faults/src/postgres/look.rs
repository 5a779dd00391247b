//! Whether everything is as it was promised.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use sickbay_core::MessageId;
use sickbay_core::decide::SetAside;
use sickbay_core::port::Overview;
use sickbay_core::quarantine::{Attempt, AttemptEnd, PageRequest, QuarantineFilter};
use sickbay_store::PostgresStore;
use tokio_postgres::Client;

use super::child::Wish;
use super::workers::{ATTEMPTS, Plan, Workers};

/// Exactly the poisoned messages are there, each after exactly as many attempts as it had. Answers their places.
pub(super) async fn quarantine(
    store: &PostgresStore,
    plan: &Plan,
    outcome: &mut Workers,
) -> Result<Vec<(MessageId, u64)>> {
    let mut poisoned: HashMap<String, (u64, Wish)> = (0..plan.streams)
        .filter_map(|stream| Some((Plan::stream_name(stream), plan.poison(stream)?)))
        .collect();
    let page = PageRequest { rows_max: 1000, after: None };
    let dead = store.quarantine(&QuarantineFilter::default(), page).await?.rows;
    outcome.quarantined = dead.len() as u64;
    let mut places = Vec::new();
    for letter in dead {
        let view =
            store.find(letter.id.to_string().parse()?).await?.context("a dead letter without a message")?;
        let payload = String::from_utf8_lossy(&view.message.payload).into_owned();
        let stream = letter.stream.as_ref().map(ToString::to_string).unwrap_or_default();
        let place = payload.split_once(' ').and_then(|(_, place)| place.parse().ok()).unwrap_or(0);
        places.push((letter.id, place));
        let c = letter.counters;
        let exact = match poisoned.remove(&stream).filter(|(_, wish)| wish.payload(place) == payload) {
            Some((_, Wish::Fail)) => {
                letter.set_aside == SetAside::MaxDeliveryCountExceeded && c.failures == ATTEMPTS
            }
            Some((_, _)) => letter.set_aside == SetAside::CrashBudgetSpent && c.charges == ATTEMPTS,
            None => {
                outcome.blamed += 1;
                continue;
            }
        };
        if !exact {
            outcome
                .lost
                .push(format!("{payload:?} of {stream} was quarantined too early or too late: {c:?}"));
        }
        if view.history.len() != c.deliveries as usize {
            outcome.unexplained.push(format!("{payload:?} of {stream}: {:?}", view.history));
        }
    }
    let left = poisoned.keys().map(|stream| format!("the poison of {stream} is not in quarantine"));
    outcome.lost.extend(left);
    Ok(places)
}

/// Nobody went past a quarantined message.
pub(super) async fn holds(client: &Client, plan: &Plan, outcome: &mut Workers) -> Result<()> {
    for (stream, (place, _)) in (0..plan.streams).filter_map(|stream| Some((stream, plan.poison(stream)?))) {
        let sql = "SELECT count(*) FROM handled WHERE stream = $1 AND place >= $2";
        let past: i64 = client.query_one(sql, &[&Plan::stream_name(stream), &(place as i64)]).await?.get(0);
        if past > 0 {
            outcome.lost.push(format!("{past} messages of stream {stream} went past its quarantined head"));
        }
    }
    Ok(())
}

/// Every message was handled once, and in the order of its stream.
pub(super) async fn handled(client: &Client, plan: &Plan, outcome: &mut Workers) -> Result<()> {
    let mut next: HashMap<String, i64> = HashMap::new();
    for row in client.query("SELECT stream, place FROM handled ORDER BY no", &[]).await? {
        let (stream, place): (String, i64) = (row.get(0), row.get(1));
        let expected = next.entry(stream.clone()).or_default();
        if place != *expected {
            outcome.lost.push(format!("{stream}: {place} was handled when {expected} was next"));
        }
        *expected = place + 1;
        outcome.handled += 1;
    }
    if outcome.handled != plan.messages {
        outcome.lost.push(format!("{} of {} messages were handled", outcome.handled, plan.messages));
    }
    Ok(())
}

/// A worker gives back what has waited in its buffer for half a lease of 30 seconds; by its own clock, so nearly.
const BUFFERED_MS: i64 = 14_000;

/// A handler never saw it, and it waited behind one that failed or for too long.
fn is_given_back(attempt: &Attempt, behind_a_failure: bool) -> bool {
    let held_for = attempt.ended_at.millis() - attempt.started_at.millis();
    attempt.ran.is_none() && (behind_a_failure || held_for >= BUFFERED_MS)
}

/// Every delivery of every message but the last has an end on record, and who is said to have died did die.
pub(super) async fn redelivered(
    store: &PostgresStore,
    client: &Client,
    plan: &Plan,
    dead: &HashSet<String>,
    outcome: &mut Workers,
) -> Result<()> {
    let failing: HashMap<String, u64> = (0..plan.streams)
        .filter_map(|stream| Some((stream, plan.poison(stream)?)))
        .filter(|(_, (_, wish))| *wish == Wish::Fail)
        .map(|(stream, (place, _))| (Plan::stream_name(stream), place))
        .collect();
    for row in client.query("SELECT id, delivery, stream, place FROM handled", &[]).await? {
        let (number, delivery): (i64, i64) = (row.get(0), row.get(1));
        let (stream, place): (String, i64) = (row.get(2), row.get(3));
        let behind_a_failure = failing.get(&stream).is_some_and(|failing| place as u64 > *failing);
        let id = MessageId::from_number(number as u64).context("a number that is none")?;
        let Some(view) = store.find(id.to_string().parse()?).await? else {
            outcome.lost.push(format!("message {number} is not kept"));
            continue;
        };
        let replayed = view.history.iter().any(|attempt| attempt.end == AttemptEnd::Replayed);
        let ends = view.history.iter().filter(|attempt| attempt.end != AttemptEnd::Replayed);
        let mut count = 0;
        let mut explained = true;
        for attempt in ends {
            count += 1;
            explained &= match attempt.end {
                AttemptEnd::Crashed => dead.contains(&attempt.worker),
                AttemptEnd::Failed => replayed,
                AttemptEnd::Quarantined => replayed || dead.contains(&attempt.worker),
                AttemptEnd::LeaseExpired => dead.contains(&attempt.worker),
                AttemptEnd::Released => is_given_back(attempt, behind_a_failure),
                AttemptEnd::Replayed | AttemptEnd::Reset => false,
            };
            outcome.expiries += u64::from(attempt.end == AttemptEnd::LeaseExpired);
        }
        outcome.redeliveries += count;
        if !explained || count as i64 != delivery - 1 {
            outcome.unexplained.push(format!("message {number}, delivery {delivery}: {:?}", view.history));
        }
    }
    Ok(())
}
