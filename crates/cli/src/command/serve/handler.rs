//! From the configuration of a queue to its worker.

use std::sync::Arc;
use std::time::Duration;

use sickbay::core::port::Source;
use sickbay::{Clock, Relay, Worker};
use sickbay_cli::config::{HandlerConfig, Header, QueueConfig};
use sickbay_worker::exec::{ExecHandler, ExecPool, Program};
use sickbay_worker::http::HttpHandler;

use crate::output::{Exit, Failure, Result};

/// The worker, and in words what it runs.
pub(super) fn worker(
    source: Arc<dyn Source>,
    queue: &QueueConfig,
    clock: &Arc<dyn Clock>,
) -> Result<(Worker, String)> {
    let wrong = |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, error.to_string());
    let concurrency = queue.worker.concurrency;
    let (worker, what) = match &queue.handler {
        None => return Err(Failure::new(Exit::Failed, "the queue has no handler")),
        Some(HandlerConfig::Exec { program, arguments, pool }) => {
            let shown = program.display();
            let program = Program::new(program).args(arguments);
            match pool {
                None => {
                    let handler = ExecHandler::new(program, clock.clone());
                    let worker = Worker::new(source, handler, clock.clone());
                    (worker, format!("{shown} for each message, {concurrency} at a time"))
                }
                Some(pool) => {
                    let size = pool.size.unwrap_or(concurrency);
                    let pool = ExecPool::new(program, clock.clone()).programs(size as usize);
                    (Worker::new(source, pool, clock.clone()), format!("{size} of {shown}"))
                }
            }
        }
        Some(HandlerConfig::Http { url, timeout, headers }) => {
            let handler = endpoint(url, headers, *timeout, clock)?;
            let worker = Worker::new(source, handler, clock.clone());
            (worker, format!("POST {url}, {concurrency} at a time"))
        }
        Some(HandlerConfig::Relay { publish, event_store, timeout, headers }) => {
            let mut relay = Relay::to(endpoint(publish, headers, *timeout, clock)?);
            let mut what = format!("relay to {publish}, {concurrency} at a time");
            if let Some(event_store) = event_store {
                relay = relay.storing_events(endpoint(event_store, headers, *timeout, clock)?);
                what = format!("relay to {event_store}, then {what}");
            }
            (Worker::new(source, relay, clock.clone()), what.replacen("then relay to", "then to", 1))
        }
    };
    let mut worker = worker.concurrency(concurrency);
    if let Some(prefetch) = queue.worker.prefetch {
        worker = worker.prefetch(prefetch);
    }
    for (message_type, schema) in &queue.schemas {
        let validator = schema.validator(message_type.clone()).map_err(|error| wrong(&error))?;
        worker = worker.validator(validator);
    }
    Ok((worker, what))
}

/// A place that messages are posted to.
fn endpoint(
    url: &str,
    headers: &[Header],
    timeout: Option<Duration>,
    clock: &Arc<dyn Clock>,
) -> Result<HttpHandler> {
    let wrong = |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, error.to_string());
    let mut handler = HttpHandler::new(url, clock.clone()).map_err(|error| wrong(&error))?;
    for header in headers {
        handler = handler.header(&header.name, header.value.reveal()).map_err(|error| wrong(&error))?;
    }
    Ok(match timeout {
        Some(timeout) => handler.time_limit(timeout),
        None => handler,
    })
}
