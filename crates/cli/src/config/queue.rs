//! What a queue says, what the defaults say for it, and what comes of both.

use std::collections::BTreeMap;
use std::time::Duration;

use sickbay::core::breaker::{BreakerPolicy, CountBy};
use sickbay::core::signature::GroupingRule;
use sickbay::{MessageType, Ordering, QueuePolicy, RetryOverride, RetryPolicy, Rule, WhenHeadQuarantined};
use toml::de::DeValue;

use super::duration::show_duration;
use super::handler::{self, HandlerConfig};
use super::problem::{Finding, Sort};
use super::read::{Field, Section, Span};
use super::schema::{self, SchemaFile};
use super::{QueueConfig, relay, retry, rules, shape};

/// The most deliveries a worker fetches ahead.
const PREFETCH_MAX: u32 = 1024;
/// Shorter leases end before a worker on a busy machine gets to renew them.
const LEASE_MIN: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// How a worker serves a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// How many handlers run at the same time. Defaults to 8.
    pub concurrency: u32,
    /// How many deliveries are fetched ahead. Defaults to four for each handler.
    pub prefetch: Option<u32>,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self { concurrency: 8, prefetch: None }
    }
}

/// Where a queue's messages come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueSource {
    /// Our own store.
    #[default]
    Store,
    /// RabbitMQ.
    RabbitMq,
    /// NATS JetStream.
    Nats,
    /// Redis Streams.
    Redis,
    /// Amazon SQS.
    Sqs,
    /// Azure Service Bus.
    ServiceBus,
    /// Kafka.
    Kafka,
}

impl QueueSource {
    /// The words of the file.
    pub(super) const WORDS: &[(&str, Self)] = &[
        ("store", Self::Store),
        ("rabbitmq", Self::RabbitMq),
        ("nats", Self::Nats),
        ("redis", Self::Redis),
        ("sqs", Self::Sqs),
        ("servicebus", Self::ServiceBus),
        ("kafka", Self::Kafka),
    ];

    /// The word of the file.
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, source)| *source == self).map_or("store", |(word, _)| word)
    }

    /// True if the messages are a broker's and not our own.
    pub fn is_external(self) -> bool {
        self != Self::Store
    }
}

/// What one block says of a queue; what it leaves out is `None`.
#[derive(Clone, Default)]
pub(super) struct Settings {
    retry: Option<RetryPolicy>,
    overrides: Option<Vec<RetryOverride>>,
    classification: Option<Vec<Rule>>,
    grouping: Option<Vec<GroupingRule>>,
    breaker: Option<Option<BreakerPolicy>>,
    schemas: Option<BTreeMap<MessageType, SchemaFile>>,
    handler: Option<(HandlerConfig, Span)>,
    lease: Option<Duration>,
    time_budget: Option<Duration>,
    crash_budget: Option<u32>,
    ordering: Option<Ordering>,
    when_head_quarantined: Option<WhenHeadQuarantined>,
    run_max: Option<u32>,
    key_window: Option<Duration>,
    keep_completed: Option<Duration>,
    retention: Option<Duration>,
    concurrency: Option<u32>,
    prefetch: Option<u32>,
    source: Option<QueueSource>,
}

impl Settings {
    /// Reads `[defaults]` or `[queues.NAME]`.
    pub(super) fn read(section: &Section<'_>) -> Self {
        let duration = |key, least| section.get(key).and_then(|field: Field<'_>| field.duration(least));
        let count = |key, allowed| section.get(key).and_then(|field: Field<'_>| field.count(allowed));
        let ordering = [("strict", Ordering::Strict), ("available", Ordering::Available)];
        let when_head = [("hold", WhenHeadQuarantined::Hold), ("pass", WhenHeadQuarantined::Pass)];
        Self {
            retry: section.get("retry").and_then(|field| retry::read(&field)),
            overrides: section.get("overrides").and_then(|field| retry::read_overrides(&field)),
            classification: section
                .get("classification")
                .and_then(|field| rules::read_classification(&field)),
            grouping: section.get("grouping").and_then(|field| rules::read_grouping(&field)),
            breaker: section.get("breaker").and_then(|field| read_breaker(&field)),
            schemas: section.get("schemas").map(|field| schema::read(&field)),
            handler: read_handler(section),
            lease: duration("lease", LEASE_MIN),
            time_budget: duration("time_budget", MILLISECOND),
            crash_budget: count("crash_budget", 1..=1_000_000),
            ordering: section.get("ordering").and_then(|field| field.word(&ordering)),
            when_head_quarantined: section
                .get("when_head_quarantined")
                .and_then(|field| field.word(&when_head)),
            run_max: count("run_max", 1..=1_000_000),
            key_window: duration("key_window", Duration::ZERO),
            keep_completed: duration("keep_completed", Duration::ZERO),
            retention: duration("retention", MILLISECOND),
            concurrency: count("concurrency", 1..=u32::from(u16::MAX)),
            prefetch: count("prefetch", 0..=PREFETCH_MAX),
            source: section.is(&shape::QUEUE).then(|| read_source(section)).flatten(),
        }
    }

    /// What a queue says goes before what the defaults say, setting by setting; lists and blocks are
    /// taken whole.
    pub(super) fn over(self, defaults: &Self) -> Self {
        // A broker's retries are not ours to set, so what is meant for our own queues passes it by.
        let ours = !self.source.unwrap_or_default().is_external();
        macro_rules! either {
            ($name:ident) => {
                self.$name.or_else(|| defaults.$name.clone())
            };
        }
        Self {
            retry: self.retry.or(defaults.retry.filter(|_| ours)),
            overrides: self.overrides.or_else(|| defaults.overrides.clone().filter(|_| ours)),
            classification: either!(classification),
            grouping: either!(grouping),
            breaker: either!(breaker),
            schemas: either!(schemas),
            handler: either!(handler),
            lease: either!(lease),
            time_budget: either!(time_budget),
            crash_budget: either!(crash_budget),
            ordering: either!(ordering),
            when_head_quarantined: either!(when_head_quarantined),
            run_max: either!(run_max),
            key_window: either!(key_window),
            keep_completed: either!(keep_completed),
            retention: either!(retention),
            concurrency: either!(concurrency),
            prefetch: either!(prefetch),
            source: self.source,
        }
    }

    /// Fills in what nobody said, and checks what needs both.
    pub(super) fn finish(self, queue: &Field<'_>) -> QueueConfig {
        let plain = QueuePolicy::default();
        let worker = WorkerSettings::default();
        let policy = QueuePolicy {
            retry: self.retry.unwrap_or(plain.retry),
            overrides: self.overrides.unwrap_or_default(),
            classification: self.classification.unwrap_or_default(),
            grouping: self.grouping.unwrap_or_default(),
            crash_budget: self.crash_budget.unwrap_or(plain.crash_budget),
            ordering: self.ordering.unwrap_or(plain.ordering),
            when_head_quarantined: self.when_head_quarantined.unwrap_or(plain.when_head_quarantined),
            run_max: self.run_max.unwrap_or(plain.run_max),
            breaker: self.breaker.unwrap_or(plain.breaker),
            key_window: self.key_window.unwrap_or(plain.key_window),
            keep_completed: self.keep_completed.unwrap_or(plain.keep_completed),
            lease: self.lease.unwrap_or(plain.lease),
            time_budget: self.time_budget.unwrap_or(plain.time_budget),
        };
        if let Some((handler, place)) = &self.handler
            && let HandlerConfig::Http { timeout: Some(timeout), .. }
            | HandlerConfig::Relay { timeout: Some(timeout), .. } = handler
            && *timeout > policy.time_budget
        {
            let budget = show_duration(policy.time_budget);
            let message = format!("the queue's time budget of {budget} ends the request before this");
            let finding = Finding::new(place.clone(), message).sort(Sort::Clash);
            queue.report(finding.help("raise `time_budget` or lower `timeout`"));
        }
        QueueConfig {
            policy,
            worker: WorkerSettings {
                concurrency: self.concurrency.unwrap_or(worker.concurrency),
                prefetch: self.prefetch,
            },
            retention: self.retention,
            source: self.source.unwrap_or_default(),
            schemas: self.schemas.unwrap_or_default(),
            handler: self.handler.map(|(handler, _)| handler),
        }
    }
}

/// What handles the messages: a handler or a relay.
fn read_handler(section: &Section<'_>) -> Option<(HandlerConfig, Span)> {
    if let Some(field) = section.get("relay") {
        return Some((relay::read(section, &field)?, timeout_place(&field)));
    }
    let field = section.get("handler")?;
    Some((handler::read(&field)?, timeout_place(&field)))
}

fn timeout_place(handler: &Field<'_>) -> Span {
    let timeout = handler.value().as_table().and_then(|table| table.get("timeout"));
    timeout.map_or_else(|| handler.span(), toml::Spanned::span)
}

/// The source of a queue. Only our own store can keep a message for a later attempt.
fn read_source(section: &Section<'_>) -> Option<QueueSource> {
    let field = section.get("source")?;
    let source = field.word(QueueSource::WORDS)?;
    if source.is_external() {
        for key in ["retry", "overrides"] {
            let Some(own) = section.get(key) else { continue };
            let message =
                format!("`{key}` cannot be honoured on a queue whose source is {}", source.as_str());
            section.report(
                Finding::new(own.key_span(), message)
                    .related(field.span(), "the source is given here")
                    .help("its messages stay in the broker, which redelivers them by its own rules"),
            );
        }
    }
    Some(source)
}

/// Reads a breaker; `false` switches off what the defaults switch on.
fn read_breaker(field: &Field<'_>) -> Option<Option<BreakerPolicy>> {
    if let DeValue::Boolean(wanted) = field.value() {
        return Some(wanted.then(BreakerPolicy::default));
    }
    let section = field.section(&shape::BREAKER)?;
    let plain = BreakerPolicy::default();
    let count = |key| section.get(key).and_then(|field: Field<'_>| field.count(1..=1_000_000));
    let by = [("signature", CountBy::Signature), ("type", CountBy::Type)];
    Some(Some(BreakerPolicy {
        failures_per_minute: count("failures_per_minute").unwrap_or(plain.failures_per_minute),
        cool_down: section
            .get("cool_down")
            .and_then(|field| field.duration(MILLISECOND))
            .unwrap_or(plain.cool_down),
        probes: count("probes").unwrap_or(plain.probes),
        by: section.get("by").and_then(|field| field.word(&by)).unwrap_or(plain.by),
    }))
}
