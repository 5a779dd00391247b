//! A relay: a queue as an outbox (C5). What a service pushed in the transaction of its own data is handed on to
//! an event store and to a transport, stage by stage.

use sickbay_core::{Failure, Stages, Verdict};

use crate::answer::Answer;
use crate::context::Context;
use crate::handler::{BoxFuture, Handler};

/// Hands each message on. The stages are [`Stages::STORED`], which it has by being in the queue,
/// [`Stages::EVENT_STORED`] if there is an event store, and [`Stages::PUBLISHED`]. A message that failed on the way
/// keeps the stages it has finished, and its next attempt resumes after them.
///
/// A sink is any [`Handler`]: `HttpHandler` is the one for HTTP. Each attempt carries
/// the same message id, so a sink that has seen it can tell: a worker that dies between a stage and its
/// settlement sends once more.
///
/// ```
/// # use sickbay_worker::{Context, Relay};
/// let publish = async |ctx: Context| println!("published {}", ctx.id());
/// let relay = Relay::to(publish).storing_events(async |ctx: Context| println!("stored {}", ctx.id()));
/// ```
pub struct Relay {
    transport: Box<dyn Handler>,
    event_store: Option<Box<dyn Handler>>,
}

impl Relay {
    /// Publishes to this transport.
    pub fn to(transport: impl Handler + 'static) -> Self {
        Self { transport: Box::new(transport), event_store: None }
    }

    /// Hands each message to this event store first.
    #[must_use]
    pub fn storing_events(mut self, event_store: impl Handler + 'static) -> Self {
        self.event_store = Some(Box::new(event_store));
        self
    }

    async fn relay(&self, ctx: Context) -> Answer {
        ctx.finish_stage(Stages::STORED);
        let event_store = self.event_store.iter().map(|sink| (Stages::EVENT_STORED, sink));
        for (stage, sink) in event_store.chain([(Stages::PUBLISHED, &self.transport)]) {
            if ctx.stages().has(stage) {
                continue;
            }
            match sink.handle(ctx.clone()).await {
                Answer::Verdict(Verdict::Done(done)) if done.effect.is_none() => ctx.finish_stage(stage),
                Answer::Verdict(Verdict::Done(_)) => return writes_of_its_own(),
                other => return other,
            }
        }
        Answer::done()
    }
}

/// They would have to commit before the stages that follow.
fn writes_of_its_own() -> Answer {
    let failure = Failure::poison(
        "a sink of a relay answered with writes for the store's transaction, which a relay cannot carry out; use a handler instead",
    );
    Answer::Verdict(Verdict::poison(failure))
}

impl Handler for Relay {
    fn handle(&self, delivery: Context) -> BoxFuture<'_, Answer> {
        Box::pin(self.relay(delivery))
    }
}
