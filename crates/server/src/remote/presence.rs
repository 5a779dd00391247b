//! The connection by which this process says that it lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::Method;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sickbay_core::port::ProcessId;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

use crate::client::{Call, Client, Pool};
use crate::wire::Problem;
use crate::wire::exchange::Visit;

/// Keeps the visit going as long as there are claims.
pub(super) struct Keeper {
    client: Client,
    process: ProcessId,
    visit: Mutex<Option<Ongoing>>,
}

struct Ongoing {
    visit: Visit,
    is_on: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Keeper {
    pub(super) fn new(client: Client, process: ProcessId) -> Self {
        Self { client, process, visit: Mutex::new(None) }
    }

    /// Makes sure that the owner would notice the death of this process.
    pub(super) async fn ensure(&self) -> Result<(), Problem> {
        let Some(pool) = self.client.pool() else { return Ok(()) };
        let mut visit = self.visit.lock().await;
        if visit.as_ref().is_none_or(|ongoing| !ongoing.is_on.load(Ordering::Acquire)) {
            *visit = None;
            *visit = Some(begin(pool, self.process).await?);
        }
        Ok(())
    }

    /// Says goodbye, if there was a visit.
    pub(super) async fn leave(&self) -> Result<(), Problem> {
        if let Some(ongoing) = self.visit.lock().await.take() {
            self.client.goodbye(&ongoing.visit).await?;
        }
        Ok(())
    }
}

async fn begin(pool: &Arc<Pool>, process: ProcessId) -> Result<Ongoing, Problem> {
    let path = format!("/v1/internal/presence?process={}", process.0);
    let request = pool.request(Call { method: Method::GET, path, body: Bytes::new() })?;
    let mut connection = pool.open().await?;
    let response = connection.begin(request).await;
    let response = response.map_err(|_| Problem::gone("it hangs up before it is asked"))?;
    let mut body = response.into_body();
    let visit: Visit = first_line(&mut body).await?;
    let is_on = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&is_on);
    let task = pool.handle().spawn(async move {
        while let Some(Ok(_)) = body.frame().await {}
        flag.store(false, Ordering::Release);
        drop(connection);
    });
    Ok(Ongoing { visit, is_on, task: task.abort_handle() })
}

async fn first_line(body: &mut Incoming) -> Result<Visit, Problem> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        match body.frame().await {
            Some(Ok(frame)) => line.extend_from_slice(frame.data_ref().map_or(&[], Bytes::as_ref)),
            _ => return Err(Problem::gone("it ends the visit at once")),
        }
    }
    crate::extract::parse(&line)
}
