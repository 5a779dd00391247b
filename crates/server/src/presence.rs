//! Who is here: processes that say by an open connection that they live, and what follows when one of
//! them is gone without a word.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use sickbay_core::port::ProcessId;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::api::Api;
use crate::wire::exchange::Visit;

/// So many dead processes are remembered, for claims that were on their way when they died.
const GONE_MAX: usize = 1024;

/// The visits of all processes.
#[derive(Default)]
pub(crate) struct Presence {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_visit: u64,
    /// For each process its visits, each with what ends it.
    visits: HashMap<ProcessId, HashMap<u64, oneshot::Sender<()>>>,
    gone: VecDeque<ProcessId>,
}

impl Presence {
    /// True if this process died a short while ago.
    pub(crate) fn is_gone(&self, process: ProcessId) -> bool {
        self.state().gone.contains(&process)
    }

    /// The process says goodbye: the visit ends, and nothing follows. False if there is no such visit.
    pub(crate) fn leave(&self, visit: Visit) -> bool {
        self.state().remove(visit)
    }

    fn arrive(&self, process: ProcessId) -> (u64, oneshot::Receiver<()>) {
        let (end, ended) = oneshot::channel();
        let mut state = self.state();
        state.last_visit += 1;
        let number = state.last_visit;
        state.gone.retain(|gone| *gone != process);
        state.visits.entry(process).or_default().insert(number, end);
        (number, ended)
    }

    /// The connection of a visit ended. True if it was the process's last and it had not said goodbye.
    fn lose(&self, visit: Visit) -> bool {
        let mut state = self.state();
        let process = ProcessId(visit.process);
        let died = state.remove(visit) && !state.visits.contains_key(&process);
        if died {
            if state.gone.len() == GONE_MAX {
                state.gone.pop_front();
            }
            state.gone.push_back(process);
        }
        died
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, visit: Visit) -> bool {
        let process = ProcessId(visit.process);
        let Some(visits) = self.visits.get_mut(&process) else { return false };
        let was_there = visits.remove(&visit.visit).is_some();
        if visits.is_empty() {
            self.visits.remove(&process);
        }
        was_there
    }
}

/// The answer that lasts as long as the visit: one line, and then nothing until the end.
pub(crate) struct Visiting {
    line: Option<Bytes>,
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Dropped with the answer.
    _guard: Guard,
}

impl Visiting {
    /// Begins a visit.
    pub(crate) fn begin(api: &Api, process: ProcessId) -> Self {
        let (number, ended) = api.presence().arrive(process);
        let visit = Visit { process: process.0, visit: number };
        let mut line = serde_json::to_vec(&visit).unwrap_or_default();
        line.push(b'\n');
        let waiting = api.clone();
        let over = Box::pin(async move {
            tokio::select! {
                _ = ended => {}
                () = waiting.closed() => {}
            }
        });
        let guard = Guard { api: api.clone(), visit, handle: Handle::try_current().ok() };
        Self { line: Some(line.into()), over, _guard: guard }
    }
}

impl Body for Visiting {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(line) = self.line.take() {
            return Poll::Ready(Some(Ok(Frame::data(line))));
        }
        self.over.as_mut().poll(context).map(|()| None)
    }
}

/// Sees to it that a visit which ends without a goodbye has its consequences.
struct Guard {
    api: Api,
    visit: Visit,
    handle: Option<Handle>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        // An owner that stops gives everything back itself.
        if !self.api.presence().lose(self.visit) || self.api.is_closing() {
            return;
        }
        let (api, process) = (self.api.clone(), ProcessId(self.visit.process));
        if let Some(handle) = &self.handle {
            handle.spawn(async move {
                let evidence = "its process ended the connection to the store's owner without a goodbye";
                // If it fails, the leases run out instead.
                drop(api.store().process_died(process, evidence.to_owned()).await);
            });
        }
    }
}
