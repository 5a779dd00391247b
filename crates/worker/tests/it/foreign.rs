//! What the tests of programs and endpoints share: messages in hand, and waiting for real processes
//! without sleeping.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sickbay_core::classify::Classifier;
use sickbay_core::{
    Counters, Delivery, Failure, Lease, LeaseToken, Message, MessageId, Priority, QueueName, Stages,
    Timestamp, Verdict,
};
use sickbay_testkit::ManualClock;
use sickbay_worker::{Answer, Context, Handler};

use crate::scene::SECOND;

pub(crate) const BUDGET: Duration = Duration::from_secs(40);

/// A script that the tests come with.
pub(crate) fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/handlers").join(name)
}

/// A message of these bytes in a worker's hands.
pub(crate) fn delivery(number: u64, payload: impl Into<Bytes>) -> Delivery {
    let id = MessageId::from_number(number).unwrap();
    let message = Message {
        id,
        queue: QueueName::new("orders").unwrap(),
        message_type: None,
        stream: None,
        key: None,
        priority: Priority::default(),
        pushed_at: Timestamp::from_millis(1_767_225_600_000),
        deadline_at: None,
        headers: Vec::new(),
        payload: payload.into(),
    };
    Delivery {
        message,
        lease: Lease {
            token: LeaseToken { epoch: 1, claim: number, message: id },
            granted_at: Timestamp::default(),
            expires_at: Timestamp::NEVER,
        },
        counters: Counters { deliveries: 1, ..Counters::default() },
        stages: Stages::NONE,
        cause: None,
        suspect: false,
    }
}

pub(crate) fn context(clock: &ManualClock, delivery: Delivery) -> Context {
    Context::new(delivery, Arc::new(clock.clone()), BUDGET)
}

/// Lets a handler run on a message of these bytes.
pub(crate) async fn handle(handler: &impl Handler, clock: &ManualClock, payload: impl Into<Bytes>) -> Answer {
    within(handler.handle(context(clock, delivery(1, payload)))).await
}

/// The failure that an answer comes to under the presets.
pub(crate) fn failure(answer: Answer) -> Failure {
    match answer {
        Answer::Raw(raw) => Classifier::default().classify(None, raw),
        Answer::Verdict(Verdict::Retry(failed) | Verdict::Poison(failed)) => failed.failure,
        other => panic!("no failure: {other:?}"),
    }
}

pub(crate) fn is_done(answer: &Answer) -> bool {
    matches!(answer, Answer::Verdict(Verdict::Done(_)))
}

pub(crate) fn deferred(answer: &Answer) -> Option<Duration> {
    match answer {
        Answer::Verdict(Verdict::Defer(wait)) => Some(*wait),
        _ => None,
    }
}

/// What real processes do has no time of its own; what never comes must not hang the tests.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(60 * SECOND, work).await.expect("it hangs")
}

/// Waits for something that a real process brings about.
pub(crate) async fn comes_true(mut holds: impl AsyncFnMut() -> bool) {
    within(async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
