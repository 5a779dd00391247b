//! All that can be seen of a store, in words: two stores that look the same are the same.

use sickbay_core::message::Status;
use sickbay_core::port::Store;
use sickbay_core::quarantine::{Attempt, DeadLetter, MessageView, PageRequest, QuarantineFilter};
use sickbay_core::{Failure, MessageId, Reason, StoreError};
use sickbay_testkit::Fixture;

/// What was seen: one line a thing.
pub type Seen = Vec<String>;

/// Looks at everything: the figures, streams and dead letters, and the messages with numbers up to this one.
pub async fn observe(fixture: &dyn Fixture, numbers: u64) -> Result<Seen, StoreError> {
    let store = fixture.store();
    let mut seen = Vec::new();
    for (queue, policy) in store.queues().await? {
        let stats = store.stats(&queue).await?;
        assert!(stats.adds_up(), "the counts of {queue} do not add up: {stats:?}");
        seen.push(format!("{queue} {policy:?}"));
        seen.push(format!("{queue} {stats:?}"));
        seen.push(format!("{queue} {:?}", store.streams(&queue, 100).await?));
    }
    for discarded in [false, true] {
        let filter = QuarantineFilter { discarded, ..QuarantineFilter::default() };
        let mut page = store.quarantine(&filter, PageRequest::default()).await?;
        page.rows.iter_mut().for_each(plain_dead);
        seen.push(format!("dead {:?}", page.rows));
    }
    for number in 1..=numbers {
        seen.push(message(store.as_ref(), number).await?);
    }
    seen.push(format!("effects {:?}", fixture.effects()));
    Ok(seen)
}

async fn message(store: &dyn Store, number: u64) -> Result<String, StoreError> {
    let Some(id) = MessageId::from_number(number) else { return Ok(String::new()) };
    let Ok(prefix) = id.to_string().parse() else { return Ok(String::new()) };
    let Some(mut view) = store.find(prefix).await? else { return Ok(format!("{number} gone")) };
    plain(&mut view);
    assert!(
        view.status == Status::Active || view.counters.deliveries as usize <= view.history.len(),
        "{number}: a delivery without an end on record: {view:?}"
    );
    Ok(format!("{number} {view:?}"))
}

/// Leaves out what may differ: the store's own words about a death, and the numbers of claims.
fn plain(view: &mut MessageView) {
    view.last_delivery = None;
    view.history.iter_mut().for_each(plain_attempt);
    view.dead.iter_mut().for_each(plain_dead);
}

fn plain_attempt(attempt: &mut Attempt) {
    if let Some(Failure { reason: Reason::Crash, error, .. }) = &mut attempt.failure {
        error.clear();
        attempt.signature = None;
    }
}

fn plain_dead(dead: &mut DeadLetter) {
    if dead.reason == Reason::Crash {
        dead.error.clear();
        dead.signature = sickbay_core::signature::Signature::from_bits(0);
    }
}

/// The first line that differs.
pub fn difference(one: &Seen, other: &Seen) -> String {
    let differing = one.iter().zip(other).find(|(one, other)| one != other);
    match differing {
        Some((one, other)) => format!("  found {one}\n  model {other}"),
        None => format!("  found {} lines, model {}", one.len(), other.len()),
    }
}
