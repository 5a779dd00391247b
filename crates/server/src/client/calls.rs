//! One method per route.

use axum::http::Method;
use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sickbay_core::{MessageType, QueueName, StreamKey};

use super::{Call, Client};
use crate::wire::Problem;
use crate::wire::act::{Act, Acted, Outcomes, ReplayOne, Why};
use crate::wire::delivery::{Extend, Extended, Receive, Received};
use crate::wire::exchange::{
    Adopt, AskDone, AskPolicy, Count, Died, IsDone, Numbers, PolicyInForce, Purge, SetGate, Visit,
};
use crate::wire::message::{LinesAnswer, MessageView, Push, PushAnswer};
use crate::wire::process::Processes;
use crate::wire::quarantine::{Bulk, BulkAnswer, DeadLetters, Query};
use crate::wire::queue::{Done, Part, Queue, QueueView, Queues};
use crate::wire::settle::{Settle, SettleAnswer};
use crate::wire::stats::{Health, Stats};
use crate::wire::stream::{Released, Reset, ResetAnswer, StreamDetail, Streams};

/// A part of a path.
fn part(text: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

impl Client {
    /// Whether the owner of the store is well.
    pub async fn health(&self) -> Result<Health, Problem> {
        self.get("/v1/health").await
    }

    /// The figures of all queues.
    pub async fn stats(&self) -> Result<Stats, Problem> {
        self.get("/v1/stats").await
    }

    /// Who works on the store.
    pub async fn processes(&self) -> Result<Processes, Problem> {
        self.get("/v1/processes").await
    }

    /// Pushes messages, all or none.
    pub async fn push(&self, push: &Push) -> Result<PushAnswer, Problem> {
        self.post("/v1/push", push).await
    }

    /// Pushes one message per line. The problem of a bad line says how many lines are stored.
    pub async fn push_lines(
        &self,
        queue: Option<&QueueName>,
        lines: impl Into<Bytes>,
    ) -> Result<LinesAnswer, Problem> {
        let query = queue.map(|queue| format!("?queue={}", part(queue.as_str()))).unwrap_or_default();
        let path = format!("/v1/push/ndjson{query}");
        self.call(Call { method: Method::POST, path, body: lines.into() }).await
    }

    /// All queues with their policies.
    pub async fn queues(&self) -> Result<Queues, Problem> {
        self.get("/v1/queues").await
    }

    /// Creates a queue or changes its policy.
    pub async fn define_queue(&self, queue: &Queue) -> Result<Done, Problem> {
        self.put("/v1/queues", queue).await
    }

    /// One queue with its policy and figures.
    pub async fn queue(&self, queue: &QueueName) -> Result<QueueView, Problem> {
        self.get(format!("/v1/queues/{}", part(queue.as_str()))).await
    }

    /// Stops deliveries of a queue, or of one type in it.
    pub async fn pause(&self, queue: &QueueName, message_type: Option<MessageType>) -> Result<Done, Problem> {
        self.post(format!("/v1/queues/{}/pause", part(queue.as_str())), &Part { message_type }).await
    }

    /// Lets deliveries of a queue, or of one type in it, go on.
    pub async fn resume(
        &self,
        queue: &QueueName,
        message_type: Option<MessageType>,
    ) -> Result<Done, Problem> {
        self.post(format!("/v1/queues/{}/resume", part(queue.as_str())), &Part { message_type }).await
    }

    /// Takes deliveries of a queue.
    pub async fn receive(&self, queue: &QueueName, receive: &Receive) -> Result<Received, Problem> {
        self.post(format!("/v1/queues/{}/receive", part(queue.as_str())), receive).await
    }

    /// Says what became of deliveries; the queue's policy decides.
    pub async fn settle(&self, settle: &Settle) -> Result<SettleAnswer, Problem> {
        self.post("/v1/settle", settle).await
    }

    /// Holds leases longer.
    pub async fn extend(&self, extend: &Extend) -> Result<Extended, Problem> {
        self.post("/v1/extend", extend).await
    }

    /// The streams of a queue, blocked ones first.
    pub async fn streams(&self, queue: &QueueName, rows: u32) -> Result<Streams, Problem> {
        self.get(format!("/v1/queues/{}/streams?rows={rows}", part(queue.as_str()))).await
    }

    /// One stream with its holds and entries, at most so many of each.
    pub async fn stream(
        &self,
        queue: &QueueName,
        key: &StreamKey,
        rows: u32,
    ) -> Result<StreamDetail, Problem> {
        let path = format!("/v1/queues/{}/streams/{}?rows={rows}", part(queue.as_str()), part(key.as_str()));
        self.get(path).await
    }

    /// Gives entries of a stream their attempts back and makes them due.
    pub async fn reset_stream(
        &self,
        queue: &QueueName,
        key: &StreamKey,
        reset: &Reset,
    ) -> Result<ResetAnswer, Problem> {
        let path = format!("/v1/queues/{}/streams/{}/reset", part(queue.as_str()), part(key.as_str()));
        self.post(path, reset).await
    }

    /// Lets a blocked stream go on without its head.
    pub async fn release_stream(&self, queue: &QueueName, key: &StreamKey) -> Result<Released, Problem> {
        let path = format!("/v1/queues/{}/streams/{}/release", part(queue.as_str()), part(key.as_str()));
        self.post(path, &Done {}).await
    }

    /// All that is known of the one message whose id begins like this.
    pub async fn message(&self, id: &str) -> Result<MessageView, Problem> {
        self.get(format!("/v1/messages/{}", part(id))).await
    }

    /// Sets a live message aside.
    pub async fn dead_letter(&self, id: &str, why: &Why) -> Result<Acted, Problem> {
        self.post(format!("/v1/messages/{}/dead-letter", part(id)), why).await
    }

    /// Removes a message that waits.
    pub async fn cancel(&self, id: &str) -> Result<Acted, Problem> {
        self.post(format!("/v1/messages/{}/cancel", part(id)), &Done {}).await
    }

    /// Makes a message due that waits for its time.
    pub async fn hasten(&self, id: &str) -> Result<Acted, Problem> {
        self.post(format!("/v1/messages/{}/hasten", part(id)), &Done {}).await
    }

    /// Gives a message that waits its attempts back.
    pub async fn reset_attempts(&self, id: &str) -> Result<Acted, Problem> {
        self.post(format!("/v1/messages/{}/reset-attempts", part(id)), &Done {}).await
    }

    /// Sends one dead letter back.
    pub async fn replay(&self, id: &str, how: &ReplayOne) -> Result<Acted, Problem> {
        self.post(format!("/v1/messages/{}/replay", part(id)), how).await
    }

    /// A page of dead letters, newest quarantined first.
    pub async fn quarantine(&self, query: &Query) -> Result<DeadLetters, Problem> {
        self.get(format!("/v1/quarantine?{}", query.write()?)).await
    }

    /// Sends many dead letters back.
    pub async fn replay_many(&self, bulk: &Bulk) -> Result<BulkAnswer, Problem> {
        self.post("/v1/quarantine/replay", bulk).await
    }

    /// Discards many dead letters; they can be restored until they are purged.
    pub async fn discard_many(&self, bulk: &Bulk) -> Result<BulkAnswer, Problem> {
        self.post("/v1/quarantine/discard", bulk).await
    }

    /// Brings many discarded dead letters back.
    pub async fn restore_many(&self, bulk: &Bulk) -> Result<BulkAnswer, Problem> {
        self.post("/v1/quarantine/restore", bulk).await
    }
}

/// What a store in another process needs.
impl Client {
    /// Pushes messages, all or none, and has only their numbers told.
    pub async fn push_numbers(&self, push: &Push) -> Result<Numbers, Problem> {
        self.post("/v1/internal/push", push).await
    }

    /// Prolongs leases.
    pub async fn renew(&self, extend: &Extend) -> Result<Extended, Problem> {
        self.post("/v1/internal/renew", extend).await
    }

    /// Says that a worker process is gone.
    pub async fn process_died(&self, died: &Died) -> Result<Count, Problem> {
        self.post("/v1/internal/process-died", died).await
    }

    /// Does what time has made due.
    pub async fn sweep(&self) -> Result<Done, Problem> {
        self.post("/v1/internal/sweep", &Done {}).await
    }

    /// The policy in force, unless the asker has it.
    pub async fn policy(&self, ask: &AskPolicy) -> Result<PolicyInForce, Problem> {
        self.post("/v1/internal/policy", ask).await
    }

    /// Takes failed messages of a broker in.
    pub async fn adopt(&self, adopt: &Adopt) -> Result<PushAnswer, Problem> {
        self.post("/v1/internal/adopt", adopt).await
    }

    /// Opens or closes deliveries of a message type.
    pub async fn set_gate(&self, set: &SetGate) -> Result<Done, Problem> {
        self.post("/v1/internal/gate", set).await
    }

    /// Whether the message with a key is done.
    pub async fn is_done(&self, ask: &AskDone) -> Result<IsDone, Problem> {
        self.post("/v1/internal/is-done", ask).await
    }

    /// Says that a process goes and leaves nothing behind.
    pub async fn goodbye(&self, visit: &Visit) -> Result<Done, Problem> {
        self.post("/v1/internal/goodbye", visit).await
    }

    /// One act on a batch of messages, in one transaction.
    pub async fn act(&self, act: &Act) -> Result<Outcomes, Problem> {
        self.post("/v1/internal/act", act).await
    }

    /// Removes discarded dead letters for good.
    pub async fn purge(&self, purge: &Purge) -> Result<Count, Problem> {
        self.post("/v1/internal/purge", purge).await
    }
}
