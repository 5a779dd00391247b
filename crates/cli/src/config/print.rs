//! A configuration as a file again.

use std::time::Duration;

use sickbay::core::breaker::{BreakerPolicy, CountBy};
use sickbay::{Backoff, Ordering, QueuePolicy, RetryOverride, RetryPolicy, Rule, WhenHeadQuarantined};
use toml::{Table, Value};

use super::duration::show_duration;
use super::handler::{HandlerConfig, Header};
use super::{Config, QueueConfig, QueueSource, StoreConfig};

pub(super) fn to_toml(config: &Config) -> String {
    let store = match &config.store {
        StoreConfig::Sqlite { path } => table([("path", Some(text(path.display())))]),
        StoreConfig::Postgres { address } => {
            let variable = address.variable().map(|variable| format!("env:{variable}"));
            table([("url", Some(text(variable.unwrap_or_else(|| address.to_string()))))])
        }
    };
    let queues = config.queues.iter().map(|(name, queue)| (name.to_string(), queue_table(queue).into()));
    let document = table([
        ("store", Some(store.into())),
        ("queues", Some(Value::Table(queues.collect())).filter(|_| !config.queues.is_empty())),
    ]);
    document.to_string()
}

fn queue_table(queue: &QueueConfig) -> Table {
    let QueueConfig { policy, worker, retention, source, schemas, handler } = queue;
    let schemas: Table =
        schemas.iter().map(|(name, schema)| (name.to_string(), text(schema.path.display()))).collect();
    let mut block = policy_table(policy);
    if *source != QueueSource::Store {
        // A broker's queue has no retry of ours.
        block.remove("retry");
    }
    block.extend(table([
        ("source", (*source != QueueSource::Store).then(|| text(source.as_str()))),
        ("retention", retention.map(span)),
        ("concurrency", Some(number(worker.concurrency))),
        ("prefetch", worker.prefetch.map(number)),
        ("schemas", (!schemas.is_empty()).then(|| schemas.into())),
        (
            if matches!(handler, Some(HandlerConfig::Relay { .. })) { "relay" } else { "handler" },
            handler.as_ref().map(|handler| handler_table(handler).into()),
        ),
    ]));
    block
}

fn policy_table(policy: &QueuePolicy) -> Table {
    let available = policy.ordering == Ordering::Available;
    let pass = policy.when_head_quarantined == WhenHeadQuarantined::Pass;
    table([
        ("retry", Some(retry_table(&policy.retry).into())),
        ("overrides", list(&policy.overrides, override_table)),
        ("classification", list(&policy.classification, rule_table)),
        (
            "grouping",
            list(&policy.grouping, |rule| {
                table([("name", Some(text(rule.name()))), ("pattern", Some(text(rule.pattern())))])
            }),
        ),
        ("breaker", policy.breaker.as_ref().map(|breaker| breaker_table(breaker).into())),
        ("lease", Some(span(policy.lease))),
        ("time_budget", Some(span(policy.time_budget))),
        ("crash_budget", Some(number(policy.crash_budget))),
        ("ordering", Some(text(if available { "available" } else { "strict" }))),
        ("when_head_quarantined", Some(text(if pass { "pass" } else { "hold" }))),
        ("run_max", Some(number(policy.run_max))),
        ("key_window", Some(span(policy.key_window))),
        ("keep_completed", Some(span(policy.keep_completed))),
    ])
}

fn retry_table(retry: &RetryPolicy) -> Table {
    let (wait, pause) = match retry.backoff {
        Backoff::Cooldown(pause) => ("cooldown", pause),
        Backoff::Exponential(base) => ("backoff", base),
    };
    table([
        ("attempts", Some(number(retry.attempts))),
        (wait, Some(span(pause))),
        ("cap", Some(span(retry.cap))),
        ("jitter", Some(Value::Float(retry.jitter))),
    ])
}

fn override_table(own: &RetryOverride) -> Table {
    table([
        ("message_type", own.message_type.as_ref().map(text)),
        ("reason", own.reason.map(text)),
        ("retry", Some(retry_table(&own.retry).into())),
    ])
}

fn rule_table(rule: &Rule) -> Table {
    table([
        ("name", rule.name.as_ref().map(text)),
        ("text", rule.text.as_ref().map(text)),
        ("regex", rule.regex.as_ref().map(text)),
        ("exit_code", rule.exit_code.map(|code| Value::Integer(code.into()))),
        ("http_status", rule.http_status.map(text)),
        ("code", rule.code.as_ref().map(text)),
        ("message_type", rule.message_type.as_ref().map(text)),
        ("when_reason", rule.reason.map(text)),
        ("kind", Some(text(rule.kind))),
        ("reason", rule.set_reason.map(text)),
    ])
}

fn breaker_table(breaker: &BreakerPolicy) -> Table {
    let by = match breaker.by {
        CountBy::Signature => "signature",
        CountBy::Type => "type",
    };
    table([
        ("failures_per_minute", Some(number(breaker.failures_per_minute))),
        ("cool_down", Some(span(breaker.cool_down))),
        ("probes", Some(number(breaker.probes))),
        ("by", Some(text(by))),
    ])
}

fn handler_table(handler: &HandlerConfig) -> Table {
    match handler {
        HandlerConfig::Exec { program, arguments, pool } => {
            let mut words = vec![text(program.display())];
            words.extend(arguments.iter().map(text));
            let pool = pool.map(|pool| match pool.size {
                None => Value::Boolean(true),
                size => table([("size", size.map(number))]).into(),
            });
            table([("exec", Some(Value::Array(words))), ("pool", pool)])
        }
        HandlerConfig::Http { url, timeout, headers } => table([
            ("http", Some(text(url))),
            ("timeout", timeout.map(span)),
            ("headers", header_table(headers)),
        ]),
        HandlerConfig::Relay { publish, event_store, timeout, headers } => table([
            ("publish", Some(text(publish))),
            ("event_store", event_store.as_ref().map(text)),
            ("timeout", timeout.map(span)),
            ("headers", header_table(headers)),
        ]),
    }
}

fn header_table(headers: &[Header]) -> Option<Value> {
    let shown: Table = headers.iter().map(|header| (header.name.clone(), header_value(header))).collect();
    (!shown.is_empty()).then(|| shown.into())
}

fn header_value(header: &Header) -> Value {
    let variable = header.value.variable().map(|variable| format!("env:{variable}"));
    text(variable.as_deref().unwrap_or(header.value.reveal()))
}

fn table<const N: usize>(entries: [(&str, Option<Value>); N]) -> Table {
    entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn list<T>(items: &[T], show: impl Fn(&T) -> Table) -> Option<Value> {
    let shown: Vec<Value> = items.iter().map(|item| show(item).into()).collect();
    (!shown.is_empty()).then(|| shown.into())
}

fn text(shown: impl std::fmt::Display) -> Value {
    Value::String(shown.to_string())
}

fn number(count: u32) -> Value {
    Value::Integer(count.into())
}

fn span(duration: Duration) -> Value {
    Value::String(show_duration(duration))
}
