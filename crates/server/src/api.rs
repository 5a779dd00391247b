//! What all routes share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use sickbay_core::port::{Exchange, Exchanged, Store};
use sickbay_core::{QueueName, QueuePolicy, Settlement};
use tokio::sync::watch;

use crate::presence::Presence;
use crate::wire::Problem;

/// A store and what is known of those who use it. Cloning it is cheap.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    presence: Presence,
    tags: Tags,
    closing: watch::Sender<bool>,
}

impl Api {
    /// The API of this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let (closing, _) = watch::channel(false);
        let inner = Inner { store, presence: Presence::default(), tags: Tags::default(), closing };
        Self { inner: Arc::new(inner) }
    }

    /// All routes, ready to be served or to be called in this process.
    pub fn router(&self) -> Router {
        crate::routes::router(self)
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    pub(crate) fn presence(&self) -> &Presence {
        &self.inner.presence
    }

    pub(crate) fn tags(&self) -> &Tags {
        &self.inner.tags
    }

    /// Lets nobody wait any longer.
    pub(crate) fn close(&self) {
        self.inner.closing.send_replace(true);
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.inner.closing.borrow()
    }

    /// Returns once nobody may wait any longer.
    pub(crate) async fn closed(&self) {
        let mut closing = self.inner.closing.subscribe();
        // It cannot fail: the sender lives as long as `self`.
        drop(closing.wait_for(|closing| *closing).await);
    }

    /// An exchange with the store. A claim that waits is given up when the owner stops; what is claimed
    /// for a process that has died meanwhile is given back.
    pub(crate) async fn exchange(&self, exchange: Exchange) -> Result<Exchanged, Problem> {
        let process = exchange.claim.as_ref().map(|claim| claim.process);
        let waits = exchange.settlements.is_empty() && process.is_some();
        let exchanged = if waits {
            tokio::select! {
                biased;
                exchanged = self.store().exchange(exchange) => exchanged?,
                () = self.closed() => return Err(Problem::gone("it is stopping")),
            }
        } else {
            self.store().exchange(exchange).await?
        };
        if let Some(process) = process
            && !exchanged.deliveries.is_empty()
            && self.presence().is_gone(process)
        {
            let given_back =
                exchanged.deliveries.iter().map(|delivery| Settlement::release(delivery.token()));
            self.store().exchange(Exchange::settle(given_back.collect())).await?;
            return Ok(Exchanged { settled: exchanged.settled, deliveries: Vec::new() });
        }
        Ok(exchanged)
    }
}

/// Tags that tell policies apart, so that one that did not change need not travel again.
#[derive(Default)]
pub(crate) struct Tags {
    known: Mutex<HashMap<QueueName, (Arc<QueuePolicy>, String)>>,
}

impl Tags {
    /// The tag of this queue's policy: the same as last time if the policy is.
    pub(crate) fn of(&self, queue: &QueueName, policy: &Arc<QueuePolicy>) -> String {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(queue) {
            Some((before, tag)) if Arc::ptr_eq(before, policy) => tag.clone(),
            _ => {
                // Owners come and go, and each must have tags of its own.
                let tag = format!("{:016x}", crate::remote::random());
                known.insert(queue.clone(), (Arc::clone(policy), tag.clone()));
                tag
            }
        }
    }
}
