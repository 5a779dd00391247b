//! Connections that are kept open and used again.

use std::sync::{Mutex, PoisonError};

use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderValue, Request};
use bytes::Bytes;
use http_body_util::Full;
use tokio::runtime::Handle;

use super::connection::Unanswered;
use super::{Answered, Call, Connection, Target};
use crate::wire::Problem;

/// So many connections are kept while nobody uses them.
const IDLE_MAX: usize = 64;
/// A request that never left is tried so often.
pub(super) const TRIES_MAX: usize = 3;

/// The connections to one owner.
pub(crate) struct Pool {
    target: Target,
    /// Connections live on the runtime that the client was made in, whoever awaits them.
    handle: Handle,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub(crate) fn new(target: Target) -> Self {
        Self { target, handle: Handle::current(), idle: Mutex::new(Vec::new()) }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn send(&self, call: Call) -> Result<Answered, Problem> {
        let mut request = self.request(call)?;
        for _ in 0..TRIES_MAX {
            let mut connection = self.take().await?;
            match connection.ask(request).await {
                Ok(answered) => {
                    self.put_back(connection);
                    return Ok(answered);
                }
                Err(Unanswered::NotSent(again)) => request = *again,
                Err(Unanswered::Lost(problem)) => return Err(problem),
            }
        }
        Err(Problem::gone("it hangs up before it is asked"))
    }

    pub(crate) fn request(&self, call: Call) -> Result<Request<Full<Bytes>>, Problem> {
        let wrong = |error: &dyn std::fmt::Display| crate::extract::wrong_address("the address", error);
        let host = HeaderValue::from_str(self.target.host()).map_err(|error| wrong(&error))?;
        let mut request = Request::builder().method(call.method).uri(call.path).header(HOST, host);
        if !call.body.is_empty() {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        request.body(Full::new(call.body)).map_err(|error| wrong(&error))
    }

    /// An open connection.
    pub(crate) async fn take(&self) -> Result<Connection, Problem> {
        loop {
            let idle = self.idle().pop();
            match idle {
                Some(connection) if connection.is_open() => return Ok(connection),
                Some(_) => {}
                None => return self.open().await,
            }
        }
    }

    /// A connection of its own.
    pub(crate) async fn open(&self) -> Result<Connection, Problem> {
        let target = self.target.clone();
        let opened = self.handle.spawn(async move { target.connect().await }).await;
        opened.unwrap_or_else(|_| Err(Problem::gone("this program is stopping")))
    }

    /// Keeps a connection for the next request.
    pub(crate) fn put_back(&self, connection: Connection) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
