//! Who works on a store (rule 41): what is known of each process, put together.

use std::collections::BTreeMap;

use sickbay_core::port::ProcessId;
use sickbay_core::stats::ProcessView;
use sickbay_core::{QueueName, Timestamp};

/// What was found so far.
#[derive(Default)]
pub(crate) struct Present(BTreeMap<ProcessId, ProcessView>);

impl Present {
    /// A process is there, since it was seen at this time.
    pub(crate) fn seen(&mut self, process: ProcessId, at: Timestamp) -> &mut ProcessView {
        let view = self.0.entry(process).or_insert_with(|| ProcessView {
            process,
            name: None,
            workers: Vec::new(),
            queues: Vec::new(),
            seen_at: at,
            holds: 0,
        });
        view.seen_at = view.seen_at.max(at);
        view
    }

    /// One of its workers claimed from a queue at this time, and holds so many messages of it.
    pub(crate) fn works(
        &mut self,
        process: ProcessId,
        worker: &str,
        queue: &QueueName,
        at: Timestamp,
        holds: u64,
    ) {
        let view = self.seen(process, at);
        view.holds += holds;
        if view.workers.iter().all(|known| known != worker) {
            view.workers.push(worker.to_owned());
        }
        if !view.queues.contains(queue) {
            view.queues.push(queue.clone());
        }
    }

    pub(crate) fn finish(self) -> Vec<ProcessView> {
        let sorted = |mut view: ProcessView| {
            view.workers.sort_unstable();
            view.queues.sort_unstable();
            view
        };
        self.0.into_values().map(sorted).collect()
    }
}
