//! How others ask: the same routes, called in this process, through the socket, or by TCP.

mod calls;
mod connection;
mod flight;
mod pool;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt;

pub(crate) use connection::{Connection, Target};
pub(crate) use pool::Pool;

use crate::api::Api;
use crate::socket::socket_path;
use crate::wire::Problem;
use crate::wire::problem::Reaction;

/// Finds the owner of the store in this file and makes sure that it answers. The problem is
/// [`is_owner_gone`](Problem::is_owner_gone) if nobody owns it: then the caller can open the file itself.
pub async fn connect(store: impl AsRef<Path>) -> Result<Client, Problem> {
    let client = Client::unix(socket_path(store));
    client.health().await?;
    Ok(client)
}

/// Calls the routes of a store's owner, one method each. Cloning it is cheap, and clones share their
/// connections.
///
/// A client is made inside a runtime with I/O. Its calls can then be awaited anywhere.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
}

#[derive(Clone)]
enum Transport {
    Here(Router),
    There(Arc<Pool>),
}

/// One request.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
}

/// One answer, whatever its status.
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Client {
    /// Calls the routes in this process.
    pub fn in_process(api: &Api) -> Self {
        Self { transport: Transport::Here(api.router()) }
    }

    /// Calls through the socket at this path. Connects when it is needed.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self { transport: Transport::There(Arc::new(Pool::new(Target::Unix(path.into())))) }
    }

    /// Calls an address like `http://127.0.0.1:7070`. Connects when it is needed.
    pub fn tcp(address: &str) -> Result<Self, Problem> {
        let target = Target::tcp(address)?;
        Ok(Self { transport: Transport::There(Arc::new(Pool::new(target))) })
    }

    /// The connections, unless the routes are called in this process.
    pub(crate) fn pool(&self) -> Option<&Arc<Pool>> {
        match &self.transport {
            Transport::Here(_) => None,
            Transport::There(pool) => Some(pool),
        }
    }

    async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T, Problem> {
        let answered = match &self.transport {
            Transport::Here(router) => call_here(router.clone(), call).await?,
            Transport::There(pool) => pool.send(call).await?,
        };
        answered.read()
    }

    async fn get<T: DeserializeOwned>(&self, path: impl Into<String>) -> Result<T, Problem> {
        self.call(Call { method: Method::GET, path: path.into(), body: Bytes::new() }).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: impl Into<String>,
        body: &impl Serialize,
    ) -> Result<T, Problem> {
        self.call(Call::new(Method::POST, path, body)?).await
    }

    async fn put<T: DeserializeOwned>(
        &self,
        path: impl Into<String>,
        body: &impl Serialize,
    ) -> Result<T, Problem> {
        self.call(Call::new(Method::PUT, path, body)?).await
    }
}

impl Call {
    pub(crate) fn new(
        method: Method,
        path: impl Into<String>,
        body: &impl Serialize,
    ) -> Result<Self, Problem> {
        let body = serde_json::to_vec(body).map_err(|error| Problem::unreadable(error.to_string()))?;
        Ok(Self { method, path: path.into(), body: body.into() })
    }
}

impl Answered {
    /// What was asked for, or the problem.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        if self.status.is_success() {
            return serde_json::from_slice(&self.body).map_err(|error| self.strange(&error));
        }
        Err(serde_json::from_slice(&self.body).unwrap_or_else(|error| self.strange(&error)))
    }

    fn strange(&self, error: &serde_json::Error) -> Problem {
        let detail = format!("an answer of status {} is not what was expected: {error}", self.status);
        Problem::new(Reaction::Stop, "SB0032", detail)
    }
}

async fn call_here(router: Router, call: Call) -> Result<Answered, Problem> {
    let request = Request::builder().method(call.method).uri(call.path).body(Body::from(call.body));
    let request = request.map_err(|error| crate::extract::wrong_address("the address", error))?;
    let Ok(response) = router.oneshot(request).await;
    let status = response.status();
    match response.into_body().collect().await {
        Ok(body) => Ok(Answered { status, body: body.to_bytes() }),
        Err(error) => Err(Problem::gone(error)),
    }
}
