//! The workers of a process: one for each queue of the configuration that has a handler.

use std::collections::BTreeMap;
use std::sync::Arc;

use sickbay::core::port::Store;
use sickbay::{Clock, ProcessId, QueueName, Running, Sickbay, StoreSource, WorkerName};
use sickbay_cli::config::{Config, QueueConfig};

use super::handler;
use crate::output::{Exit, Failure, Output, Result};

/// Whose store it is, and who works on it.
pub(crate) struct Place {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) process: ProcessId,
    pub(crate) clock: Arc<dyn Clock>,
    /// What the names of its workers begin with.
    pub(crate) machine: String,
}

impl Place {
    /// The store that this process has open itself.
    pub(crate) fn here(bay: &Sickbay, machine: String) -> Self {
        Self { store: bay.store().clone(), process: bay.process(), clock: bay.clock().clone(), machine }
    }
}

/// The workers that run.
pub(crate) struct Crew {
    place: Place,
    only: Vec<QueueName>,
    out: Output,
    workers: BTreeMap<QueueName, (QueueConfig, Running)>,
}

impl Crew {
    pub(crate) fn new(place: Place, only: Vec<QueueName>, out: Output) -> Self {
        Self { place, only, out, workers: BTreeMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Runs what the configuration wants: begins, ends, and begins anew what has changed.
    pub(crate) async fn follow(&mut self, config: &Config) -> Result<()> {
        let ended: Vec<QueueName> = self
            .workers
            .iter()
            .filter(|(name, (before, _))| config.queues.get(name).is_none_or(|now| !same_work(before, now)))
            .map(|(name, _)| name.clone())
            .collect();
        for name in ended {
            if let Some((_, running)) = self.workers.remove(&name) {
                running.stop().await;
                self.out.say(&format!("{name}: its handler stops"));
            }
        }
        for (name, queue) in &config.queues {
            let wanted = self.only.is_empty() || self.only.contains(name);
            if wanted && queue.handler.is_some() && !self.workers.contains_key(name) {
                let running = self.start(name, queue)?;
                self.workers.insert(name.clone(), (queue.clone(), running));
            }
        }
        Ok(())
    }

    fn start(&self, name: &QueueName, queue: &QueueConfig) -> Result<Running> {
        let Place { store, process, clock, machine } = &self.place;
        let worker = WorkerName::new(format!("{machine}{}/{name}", std::process::id()))
            .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        let source = Arc::new(StoreSource::new(store.clone(), name.clone(), worker, *process));
        let (worker, what) = handler::worker(source, queue, clock)?;
        self.out.say(&format!("{name}: {what}"));
        Ok(worker.start())
    }

    /// Lets handlers finish, and gives the rest back.
    pub(crate) async fn stop(self) {
        let stops = self.workers.into_values().map(|(_, running)| tokio::spawn(running.stop()));
        for stop in stops.collect::<Vec<_>>() {
            // A worker that panicked has nothing more to say.
            drop(stop.await);
        }
    }
}

/// A changed policy needs no other worker: it is read at each decision.
fn same_work(before: &QueueConfig, now: &QueueConfig) -> bool {
    before.handler == now.handler && before.worker == now.worker && before.schemas == now.schemas
}
