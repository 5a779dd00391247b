//! The ports of the store: each call becomes one operation of the writer, or one read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::port::{
    Adoption, Deliveries, Desk, Exchange, Exchanged, ProcessId, Pushed, Pusher, Renewal, Replay, Replayed,
};
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    ErrorKind, LeaseToken, MessageId, MessageType, NewMessage, QueueName, QueuePolicy, Settlement,
    StoreError, StreamKey,
};

use super::SqliteStore;
use super::failure::nearly_full;
use super::sync::mpsc::Sender;
use super::sync::oneshot;
use super::tx::Tx;
use super::writer::{Answer, Job, Op, Reply};
use crate::door::closed;

/// True if the error says that nothing was written, so that the transaction can go on.
fn harmless(error: &StoreError) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict)
}

/// A call of a port, on its way to the writer.
struct Call<A, T> {
    act: A,
    reply: Reply<T>,
}

impl<A, T> Job for Call<A, T>
where
    A: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send,
    T: Send + 'static,
{
    fn carry_out(self: Box<Self>, tx: &mut Tx<'_>) -> (Answer, Result<(), StoreError>) {
        let Self { act, reply } = *self;
        let result = act(tx);
        let fatal = match &result {
            Err(error) if !harmless(error) => Err(error.clone()),
            _ => Ok(()),
        };
        let answer: Answer = Box::new(move |commit: Result<(), StoreError>| {
            drop(reply.send(commit.and(result)));
        });
        (answer, fatal)
    }

    fn refuse(self: Box<Self>, error: StoreError) {
        drop(self.reply.send(Err(error)));
    }
}

/// Waits for what comes of an exchange. Who gives up waiting may have been answered in that very moment: what was
/// handed out with the answer is given back.
struct Answered<'s> {
    answered: oneshot::Receiver<Result<Exchanged, StoreError>>,
    operations: &'s Sender<Op>,
}

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        self.answered.close();
        let Ok(Ok(exchanged)) = self.answered.try_recv() else { return };
        if !exchanged.deliveries.is_empty() {
            let back = exchanged.deliveries.iter().map(|delivery| Settlement::release(delivery.token()));
            let (nobody, _) = oneshot::channel();
            // A writer that has ended has given everything back itself.
            drop(self.operations.send(Op::Exchange(Exchange::settle(back.collect()), nobody)));
        }
    }
}

impl SqliteStore {
    /// Has the writer carry something out; answers once it is committed.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.inner.policies.check()?;
        let (reply, answered) = oneshot::channel();
        let job = Box::new(Call { act, reply });
        self.inner.operations.send(Op::Job(job)).map_err(|_| closed())?;
        answered.await.map_err(|_| self.inner.policies.check().err().unwrap_or_else(closed))?
    }
}

#[async_trait]
impl Pusher for SqliteStore {
    async fn push(&self, messages: Vec<NewMessage>) -> Result<Vec<Pushed>, StoreError> {
        self.call(|tx| if tx.state.nearly_full { Ok(Err(nearly_full())) } else { tx.push(messages).map(Ok) })
            .await?
    }

    async fn adopt(&self, adoptions: Vec<Adoption>) -> Result<Vec<Pushed>, StoreError> {
        self.call(
            |tx| if tx.state.nearly_full { Ok(Err(nearly_full())) } else { tx.adopt(adoptions).map(Ok) },
        )
        .await?
    }
}

#[async_trait]
impl Deliveries for SqliteStore {
    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged, StoreError> {
        self.inner.policies.check()?;
        let (reply, answered) = oneshot::channel();
        self.inner.operations.send(Op::Exchange(exchange, reply)).map_err(|_| closed())?;
        let mut answered = Answered { answered, operations: &self.inner.operations };
        let answer = (&mut answered.answered).await;
        answer.map_err(|_| self.inner.policies.check().err().unwrap_or_else(closed))?
    }

    async fn renew(&self, renewal: Renewal) -> Result<Vec<LeaseToken>, StoreError> {
        self.call(move |tx| Ok(tx.renew(&renewal))).await
    }

    async fn process_died(&self, process: ProcessId, evidence: String) -> Result<u64, StoreError> {
        self.call(move |tx| tx.process_died(process, &evidence)).await
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        self.call(|tx| {
            tx.expire_leases()?;
            tx.forget_old_keys()?;
            tx.forget_completed()
        })
        .await
    }

    async fn policy(&self, queue: &QueueName) -> Result<Arc<QueuePolicy>, StoreError> {
        self.inner.policies.get(queue)
    }
}

impl Tx<'_> {
    /// Prolongs leases, in memory only: after a restart no lease of this epoch counts anyway.
    fn renew(&mut self, renewal: &Renewal) -> Vec<LeaseToken> {
        let until = self.after(renewal.lease);
        let epoch = self.state.epoch;
        let mut lost = Vec::new();
        for token in &renewal.tokens {
            match self.state.leases.get_mut(&token.message.number()) {
                Some(lease)
                    if token.epoch == epoch && lease.claim == token.claim
                        || sickbay_core::bug!(RenewedWithoutToken) =>
                {
                    lease.until = lease.until.max(until);
                }
                _ => lost.push(*token),
            }
        }
        lost
    }
}

#[async_trait]
impl Desk for SqliteStore {
    async fn define_queue(&self, queue: &QueueName, policy: QueuePolicy) -> Result<(), StoreError> {
        let queue = queue.clone();
        self.call(move |tx| tx.define_queue(&queue, policy)).await
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool) -> Result<(), StoreError> {
        let queue = queue.clone();
        self.call(move |tx| tx.set_paused(&queue, paused)).await
    }

    async fn set_type_gate(
        &self,
        queue: &QueueName,
        message_type: &MessageType,
        gate: TypeGate,
    ) -> Result<(), StoreError> {
        let (queue, message_type) = (queue.clone(), message_type.clone());
        self.call(move |tx| tx.set_type_gate(&queue, &message_type, gate)).await
    }

    async fn replay(&self, replays: Vec<Replay>) -> Result<Vec<Replayed>, StoreError> {
        self.call(|tx| tx.replay(replays)).await
    }

    async fn dead_letter(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        self.call(move |tx| tx.dead_letter(&ids, &why)).await
    }

    async fn discard(&self, ids: Vec<MessageId>, why: String) -> Result<Vec<Replayed>, StoreError> {
        self.call(move |tx| tx.discard(&ids, &why)).await
    }

    async fn restore(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.call(move |tx| tx.restore(&ids)).await
    }

    async fn purge(&self, queue: &QueueName, age: Duration, rows_max: u32) -> Result<u64, StoreError> {
        let queue = queue.clone();
        self.call(move |tx| tx.purge(&queue, age, rows_max)).await
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.call(move |tx| tx.cancel(&ids)).await
    }

    async fn hasten(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.call(move |tx| tx.hasten(&ids)).await
    }

    async fn reset_attempts(&self, ids: Vec<MessageId>) -> Result<Vec<Replayed>, StoreError> {
        self.call(move |tx| tx.reset_attempts(&ids)).await
    }

    async fn release_followers(&self, queue: &QueueName, stream: &StreamKey) -> Result<bool, StoreError> {
        let (queue, stream) = (queue.clone(), stream.clone());
        self.call(move |tx| {
            let no = tx.queue_no(&queue)?;
            tx.release_followers(no, stream.as_str())
        })
        .await
    }
}

#[cfg(all(test, not(feature = "interleavings")))]
mod tests {
    use std::task::{Context, Waker};

    use sickbay_core::WorkerName;
    use sickbay_core::port::Claim;
    use sickbay_testkit::ManualClock;

    use super::*;
    use crate::sqlite::SqliteOptions;

    fn queue() -> QueueName {
        QueueName::new("q").unwrap()
    }

    fn waiting(store: &SqliteStore) -> Exchange {
        let (wait, lease) = (Duration::from_secs(60), Duration::from_secs(60));
        let worker = WorkerName::new("w").unwrap();
        Exchange::claim(Claim { queue: queue(), worker, process: store.process(), max: 1, wait, lease })
    }

    #[tokio::test]
    async fn claims_that_wait_go_on_waiting_when_a_turn_fails_while_they_are_served() {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions::new(Arc::new(ManualClock::new())).log_bytes(0);
        let store = SqliteStore::open(folder.path().join("store.db"), options).unwrap();
        store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
        let mut claims = [(); 3].map(|()| store.exchange(waiting(&store)));
        for claim in &mut claims {
            assert!(claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        let broken = store.call(|tx| {
            tx.begin()?;
            tx.execute("DROP TABLE claim", [])?;
            tx.push(vec![NewMessage::new(queue(), "never")])
        });
        assert_eq!(broken.await.unwrap_err().code(), "SB0014");
        store.push((0..3).map(|_| NewMessage::new(queue(), "x")).collect()).await.unwrap();
        for claim in claims {
            assert_eq!(claim.await.unwrap().deliveries.len(), 1);
        }
    }

    #[tokio::test]
    async fn an_exchange_that_cannot_be_carried_out_is_told_why() {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions::new(Arc::new(ManualClock::new())).log_bytes(0);
        let store = SqliteStore::open(folder.path().join("store.db"), options).unwrap();
        store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
        store.push(vec![NewMessage::new(queue(), "x")]).await.unwrap();
        // Both are in one turn: the second fails because of what the first does.
        let mut breaking = Box::pin(store.call(|tx| {
            tx.begin()?;
            tx.execute("DROP TABLE claim", []).map(drop)
        }));
        let mut late = store.exchange(waiting(&store));
        let mut context = Context::from_waker(Waker::noop());
        let (go_on, told) = std::sync::mpsc::channel();
        let mut holding = Box::pin(store.call(move |_| told.recv().map_err(|_| closed())));
        assert!(holding.as_mut().poll(&mut context).is_pending());
        assert!(breaking.as_mut().poll(&mut context).is_pending());
        assert!(late.as_mut().poll(&mut context).is_pending());
        go_on.send(()).unwrap();
        // It may be in the same turn itself.
        drop(holding.await);
        assert_eq!(late.await.unwrap_err().code(), "SB0014");
        assert_eq!(breaking.await.unwrap_err().code(), "SB0014");
        assert_eq!(store.exchange(waiting(&store)).await.unwrap().deliveries.len(), 1);
    }
}
