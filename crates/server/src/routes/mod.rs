//! Every route stands in one table: method, path, who may use it, and what answers.

mod deliveries;
mod internal;
mod messages;
mod processes;
mod push;
mod quarantine;
mod queues;
mod settle;
mod stats;
mod streams;

use std::fmt;

use axum::Router;
use axum::extract::Extension;
use axum::handler::Handler;
use axum::http::{Method, Uri};
use axum::routing::{MethodFilter, MethodRouter, on};

use crate::api::Api;
use crate::wire::Problem;
use crate::wire::problem::Reaction;
use crate::{BATCH_MAX, BODY_BYTES_MAX, LARGE_BODY_BYTES_MAX};

/// What somebody must be allowed to do to use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// Everybody may ask whether the owner is well.
    Open,
    /// Push messages.
    Push,
    /// Receive and settle deliveries.
    Work,
    /// Read queues and their figures.
    ReadQueues,
    /// Define, pause and resume queues.
    ChangeQueues,
    /// Read messages, payloads included.
    ReadMessages,
    /// Dead-letter, cancel, hasten, reset and replay messages.
    ActOnMessages,
    /// Replay, discard and restore dead letters.
    ActOnQuarantine,
    /// Release and reset streams.
    ActOnStreams,
}

impl Permission {
    /// The name that configuration uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Push => "push",
            Self::Work => "work",
            Self::ReadQueues => "queue.read",
            Self::ChangeQueues => "queue.change",
            Self::ReadMessages => "message.read",
            Self::ActOnMessages => "message.act",
            Self::ActOnQuarantine => "quarantine.act",
            Self::ActOnStreams => "stream.act",
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is known of the route that a request came by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// For access control, which reads it from the request.
    #[allow(dead_code, reason = "read by the layer that checks tokens, once there is one")]
    pub(crate) permission: Permission,
    pub(crate) body_bytes_max: usize,
}

/// A route as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    /// How it is called.
    pub method: Method,
    /// Where it is, with `{names}` for what varies.
    pub path: &'static str,
    /// What its caller must be allowed to do.
    pub permission: Permission,
}

struct Route {
    info: RouteInfo,
    body_bytes_max: usize,
    handler: MethodRouter<Api>,
}

impl Route {
    /// Its requests carry messages.
    fn large(mut self) -> Self {
        self.body_bytes_max = LARGE_BODY_BYTES_MAX;
        self
    }
}

fn get<H: Handler<T, Api>, T: 'static>(path: &'static str, permission: Permission, handler: H) -> Route {
    let info = RouteInfo { method: Method::GET, path, permission };
    Route { info, body_bytes_max: BODY_BYTES_MAX, handler: on(MethodFilter::GET, handler) }
}

fn put<H: Handler<T, Api>, T: 'static>(path: &'static str, permission: Permission, handler: H) -> Route {
    let info = RouteInfo { method: Method::PUT, path, permission };
    Route { info, body_bytes_max: BODY_BYTES_MAX, handler: on(MethodFilter::PUT, handler) }
}

fn post<H: Handler<T, Api>, T: 'static>(path: &'static str, permission: Permission, handler: H) -> Route {
    let info = RouteInfo { method: Method::POST, path, permission };
    Route { info, body_bytes_max: BODY_BYTES_MAX, handler: on(MethodFilter::POST, handler) }
}

/// The table.
fn table() -> Vec<Route> {
    use Permission as P;
    vec![
        get("/v1/health", P::Open, stats::health),
        get("/v1/stats", P::ReadQueues, stats::stats),
        post("/v1/push", P::Push, push::push).large(),
        post("/v1/push/ndjson", P::Push, push::lines).large(),
        get("/v1/queues", P::ReadQueues, queues::list),
        put("/v1/queues", P::ChangeQueues, queues::define),
        get("/v1/queues/{queue}", P::ReadQueues, queues::show),
        post("/v1/queues/{queue}/pause", P::ChangeQueues, queues::pause),
        post("/v1/queues/{queue}/resume", P::ChangeQueues, queues::resume),
        post("/v1/queues/{queue}/receive", P::Work, deliveries::receive),
        post("/v1/settle", P::Work, settle::settle).large(),
        post("/v1/extend", P::Work, deliveries::extend),
        get("/v1/queues/{queue}/streams", P::ReadQueues, streams::list),
        get("/v1/queues/{queue}/streams/{key}", P::ReadQueues, streams::show),
        post("/v1/queues/{queue}/streams/{key}/release", P::ActOnStreams, streams::release),
        post("/v1/queues/{queue}/streams/{key}/reset", P::ActOnStreams, streams::reset),
        get("/v1/processes", P::ReadQueues, processes::list),
        get("/v1/messages/{id}", P::ReadMessages, messages::show),
        post("/v1/messages/{id}/dead-letter", P::ActOnMessages, messages::dead_letter),
        post("/v1/messages/{id}/cancel", P::ActOnMessages, messages::cancel),
        post("/v1/messages/{id}/hasten", P::ActOnMessages, messages::hasten),
        post("/v1/messages/{id}/reset-attempts", P::ActOnMessages, messages::reset_attempts),
        post("/v1/messages/{id}/replay", P::ActOnMessages, messages::replay).large(),
        get("/v1/quarantine", P::ReadMessages, quarantine::list),
        post("/v1/quarantine/replay", P::ActOnQuarantine, quarantine::replay),
        post("/v1/quarantine/discard", P::ActOnQuarantine, quarantine::discard),
        post("/v1/quarantine/restore", P::ActOnQuarantine, quarantine::restore),
        post("/v1/internal/push", P::Push, internal::push).large(),
        post("/v1/internal/exchange", P::Work, internal::exchange).large(),
        post("/v1/internal/renew", P::Work, internal::renew),
        post("/v1/internal/process-died", P::Work, internal::process_died),
        post("/v1/internal/sweep", P::Work, internal::sweep),
        post("/v1/internal/policy", P::Work, internal::policy),
        post("/v1/internal/adopt", P::Work, internal::adopt).large(),
        post("/v1/internal/gate", P::Work, internal::set_gate),
        post("/v1/internal/is-done", P::Work, internal::is_done),
        get("/v1/internal/presence", P::Work, internal::presence),
        post("/v1/internal/goodbye", P::Work, internal::goodbye),
        post("/v1/internal/act", P::ActOnQuarantine, internal::act).large(),
        post("/v1/internal/purge", P::ActOnQuarantine, internal::purge),
    ]
}

/// All routes, in the order of the table.
pub fn routes() -> Vec<RouteInfo> {
    table().into_iter().map(|route| route.info).collect()
}

/// The table as a service.
pub(crate) fn router(api: &Api) -> Router {
    let mut router = Router::new();
    for Route { info, body_bytes_max, handler } in table() {
        let marks = Marks { permission: info.permission, body_bytes_max };
        router = router.route(info.path, handler.route_layer(Extension(marks)));
    }
    router.fallback(no_such_route).method_not_allowed_fallback(no_such_method).with_state(api.clone())
}

async fn no_such_route(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::new(Reaction::NotFound, "SB0024", format!("there is no route {path}"))
}

async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    let detail = format!("{path} cannot be called with {method}");
    Problem::new(Reaction::Invalid, "SB0024", detail).status(405)
}

/// Refuses a batch that is too large.
fn check_batch(count: usize, what: &str) -> Result<(), Problem> {
    if count <= BATCH_MAX {
        return Ok(());
    }
    let detail = format!("there are {count} {what}; at most {BATCH_MAX} go into one request");
    Err(Problem::new(Reaction::Invalid, "SB0025", detail).hint("send them in several requests"))
}
