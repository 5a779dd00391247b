//! Waiting for something to change: told by this process, by the database, by a clock, or found by asking.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use sickbay_core::clock::{Clock, Timestamp};
use sickbay_core::port::{Claim, Exchanged};
use sickbay_core::{Delivery, StoreError};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::Inner;
use super::claim::Claimed;
use super::push::millis;
use crate::door;

/// How often a waiting claim asks although nobody told it anything.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// For how long the database is told that somebody waits, and when it is told again.
const ANNOUNCED_FOR: Duration = Duration::from_secs(6);
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(4);
/// How long to wait before listening again after the connection was lost.
const LISTEN_AGAIN: Duration = Duration::from_millis(500);

/// Rings for those who wait for a queue.
#[derive(Default)]
pub(super) struct Bell {
    queues: Mutex<HashMap<String, Arc<Waited>>>,
    stopped: Notify,
    closed: AtomicBool,
}

/// A queue that somebody waits for.
#[derive(Default)]
struct Waited {
    changed: Notify,
    /// When the database was last told that somebody waits, by the clock of this process.
    announced_at: Mutex<Option<Timestamp>>,
}

impl Bell {
    pub(super) fn new(clock: &dyn Clock) -> Arc<Self> {
        let bell = Arc::new(Self::default());
        let waiting: Weak<Self> = Arc::downgrade(&bell);
        clock.on_tick(Arc::new(move || waiting.upgrade().inspect(|bell| bell.ring(None)).is_some()));
        bell
    }

    /// Something changed in a queue, or perhaps in all of them.
    pub(super) fn ring(&self, queue: Option<&str>) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, waited) in queues.iter() {
            if queue.is_none_or(|queue| queue == name) {
                waited.changed.notify_waiters();
            }
        }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.stopped.notify_waiters();
        self.ring(None);
    }

    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) { Err(door::closed()) } else { Ok(()) }
    }

    /// Waits so long, or until the store is closed. True if it goes on.
    pub(super) async fn pause(&self, time: Duration) -> bool {
        let mut stopped = pin!(self.stopped.notified());
        stopped.as_mut().enable();
        self.check().is_ok() && timeout(time, stopped).await.is_err()
    }

    fn waited(&self, queue: &str) -> Arc<Waited> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.entry(queue.to_owned()).or_default().clone()
    }
}

impl Waited {
    /// True if the database is to be told now that somebody waits.
    fn must_announce(&self, now: Timestamp) -> bool {
        let mut announced_at = self.announced_at.lock().unwrap_or_else(PoisonError::into_inner);
        let due = announced_at.is_none_or(|at| now.since(at) >= ANNOUNCE_AGAIN || now < at);
        if due {
            *announced_at = Some(now);
        }
        due
    }
}

impl Inner {
    /// A claim alone: waits for the first delivery (contract 11).
    pub(super) async fn claim_waiting(
        &self,
        claim: &Claim,
        reply: &mut oneshot::Sender<Result<Exchanged, StoreError>>,
    ) -> Result<Vec<Delivery>, StoreError> {
        let give_up_at = self.clock.now().plus(claim.wait);
        let waited = self.bell.waited(claim.queue.as_str());
        loop {
            let mut rung = pin!(waited.changed.notified());
            rung.as_mut().enable(); // from here on no ring is missed
            self.bell.check()?;
            let now = self.clock.now();
            let again_in = match self.claim_once(claim).await? {
                Claimed::Some(deliveries) => return Ok(deliveries),
                Claimed::NotYet(next) => next,
            };
            if now >= give_up_at || claim.max == 0 || reply.is_closed() {
                return Ok(Vec::new());
            }
            if self.options.listen && waited.must_announce(now) {
                self.announce_waiting(claim).await?;
                continue; // what came before the announcement was not announced
            }
            tokio::select! {
                () = self.wait_for(rung, give_up_at, again_in) => {}
                () = reply.closed() => return Ok(Vec::new()),
            }
        }
    }

    async fn announce_waiting(&self, claim: &Claim) -> Result<(), StoreError> {
        let (queue, process) = (claim.queue.as_str(), self.process.0 as i64);
        let time = millis(ANNOUNCED_FOR);
        let params: [super::call::Param<'_>; 3] =
            [(&queue, Type::TEXT), (&process, Type::INT8), (&time, Type::INT8)];
        self.query("SELECT sickbay.wait_for($1, $2, $3)", &params).await.map(drop)
    }

    /// Until it is rung for, the claim gives up, something comes due, or it is time to ask again.
    async fn wait_for(
        &self,
        rung: std::pin::Pin<&mut Notified<'_>>,
        give_up_at: Timestamp,
        again_in: Option<Duration>,
    ) {
        let mut time = ASK_EVERY;
        if self.options.clock.is_none() {
            time = time.min(give_up_at.since(self.clock.now())).min(again_in.unwrap_or(ASK_EVERY));
        }
        // Never a busy loop, whatever the clocks say.
        let _ = timeout(time.max(Duration::from_millis(1)), rung).await;
    }

    /// Listens on a connection of its own, and again when that is lost. What was announced in between is
    /// found by asking.
    pub(super) fn start_listening(self: &Arc<Self>) {
        if !self.options.listen {
            return;
        }
        let inner = Arc::downgrade(self);
        let bell = self.bell.clone();
        let channel = format!("{}.wake", self.options.schema);
        self.runtime.spawn(async move {
            loop {
                let Some(inner) = inner.upgrade() else { return };
                let (ring, stop) = (Arc::downgrade(&bell), bell.clone());
                let notified =
                    move |queue: Option<&str>| ring.upgrade().inspect(|bell| bell.ring(queue)).is_some();
                // The connection must not keep a store alive that nobody has any more.
                let listener = inner.pool.listener();
                drop(inner);
                let mut stopped = pin!(stop.stopped.notified());
                stopped.as_mut().enable();
                if stop.check().is_err() {
                    return;
                }
                tokio::select! {
                    _ = listener.listen(&channel, notified) => {}
                    () = stopped => return,
                }
                bell.ring(None);
                if !bell.pause(LISTEN_AGAIN).await {
                    return;
                }
            }
        });
    }
}
