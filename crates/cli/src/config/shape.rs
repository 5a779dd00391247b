//! Which keys each block of the file has. What is not listed here is refused, and what is listed is
//! described in `docs/configuration.md`; a test compares the two.

/// One block of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Where it stands: `queues.NAME.retry`.
    pub path: &'static str,
    /// What it is called in messages: "a retry block".
    pub title: &'static str,
    /// The keys it may have.
    pub keys: &'static [&'static str],
    /// What other systems call our keys, and what we write.
    pub also_known: &'static [(&'static str, &'static str)],
}

/// Every block.
pub const SHAPES: &[&Shape] = &[
    &DOCUMENT,
    &STORE,
    &DEFAULTS,
    &QUEUE,
    &RETRY,
    &BREAKER,
    &CLASSIFICATION,
    &OVERRIDE,
    &GROUPING,
    &HANDLER,
    &RELAY,
    &POOL,
];

pub(super) const DOCUMENT: Shape = Shape {
    path: "",
    title: "the file",
    keys: &["store", "defaults", "queues"],
    also_known: &[("database", "store"), ("queue", "queues"), ("default", "defaults")],
};

pub(super) const STORE: Shape = Shape {
    path: "store",
    title: "the store",
    keys: &["path", "url"],
    also_known: &[("file", "path"), ("database", "path"), ("dsn", "url")],
};

/// What queues of other systems call our settings.
const QUEUE_ALSO_KNOWN: &[(&str, &str)] = &[
    ("timeout", "time_budget"),
    ("visibility_timeout", "lease"),
    ("lock_duration", "lease"),
    ("ack_wait", "lease"),
    ("attempts", "retry = { attempts = … }"),
    ("max_attempts", "retry = { attempts = … }"),
    ("max_retries", "retry = { attempts = … }"),
    ("retries", "retry = { attempts = … }"),
    ("backoff", "retry = { backoff = … }"),
    ("cooldown", "retry = { cooldown = … }"),
    ("workers", "concurrency"),
    ("rules", "classification"),
    ("dedup_window", "key_window"),
    ("circuit_breaker", "breaker"),
    ("exec", "handler = { exec = … }"),
    ("http", "handler = { http = … }"),
    ("outbox", "relay"),
    ("fifo", "ordering"),
    ("schema", "schemas"),
    ("ttl", "retention"),
];

pub(super) const DEFAULTS: Shape = Shape {
    path: "defaults",
    title: "the defaults",
    keys: &[
        "retry",
        "overrides",
        "classification",
        "grouping",
        "breaker",
        "schemas",
        "handler",
        "relay",
        "lease",
        "time_budget",
        "crash_budget",
        "ordering",
        "when_head_quarantined",
        "run_max",
        "key_window",
        "keep_completed",
        "retention",
        "concurrency",
        "prefetch",
    ],
    also_known: QUEUE_ALSO_KNOWN,
};

pub(super) const QUEUE: Shape = Shape {
    path: "queues.NAME",
    title: "a queue",
    keys: &[
        "retry",
        "overrides",
        "classification",
        "grouping",
        "breaker",
        "schemas",
        "handler",
        "relay",
        "lease",
        "time_budget",
        "crash_budget",
        "ordering",
        "when_head_quarantined",
        "run_max",
        "key_window",
        "keep_completed",
        "retention",
        "concurrency",
        "prefetch",
        "source",
    ],
    also_known: QUEUE_ALSO_KNOWN,
};

pub(super) const RETRY: Shape = Shape {
    path: "queues.NAME.retry",
    title: "a retry block",
    keys: &["attempts", "cooldown", "backoff", "cap", "jitter"],
    also_known: &[
        ("max_attempts", "attempts"),
        ("max_retries", "attempts"),
        ("retries", "attempts"),
        ("limit", "attempts"),
        ("delay", "cooldown"),
        ("wait", "cooldown"),
        ("interval", "cooldown"),
        ("base", "backoff"),
        ("max_delay", "cap"),
        ("max_backoff", "cap"),
    ],
};

pub(super) const BREAKER: Shape = Shape {
    path: "queues.NAME.breaker",
    title: "a breaker",
    keys: &["failures_per_minute", "cool_down", "probes", "by"],
    also_known: &[
        ("threshold", "failures_per_minute"),
        ("failures", "failures_per_minute"),
        ("timeout", "cool_down"),
    ],
};

pub(super) const CLASSIFICATION: Shape = Shape {
    path: "queues.NAME.classification",
    title: "a classification rule",
    keys: &[
        "name",
        "text",
        "regex",
        "exit_code",
        "http_status",
        "code",
        "message_type",
        "when_reason",
        "kind",
        "reason",
    ],
    also_known: &[
        ("contains", "text"),
        ("match", "text"),
        ("pattern", "regex"),
        ("regexp", "regex"),
        ("status", "http_status"),
        ("exit", "exit_code"),
        ("type", "message_type"),
        ("set_reason", "reason"),
        ("action", "kind"),
    ],
};

pub(super) const OVERRIDE: Shape = Shape {
    path: "queues.NAME.overrides",
    title: "an override",
    keys: &["message_type", "reason", "retry"],
    also_known: &[
        ("type", "message_type"),
        ("attempts", "retry = { attempts = … }"),
        ("cooldown", "retry = { cooldown = … }"),
        ("backoff", "retry = { backoff = … }"),
    ],
};

pub(super) const GROUPING: Shape = Shape {
    path: "queues.NAME.grouping",
    title: "a grouping rule",
    keys: &["name", "pattern"],
    also_known: &[("regex", "pattern"), ("text", "pattern")],
};

pub(super) const HANDLER: Shape = Shape {
    path: "queues.NAME.handler",
    title: "a handler",
    keys: &["exec", "pool", "http", "timeout", "headers"],
    also_known: &[
        ("command", "exec"),
        ("program", "exec"),
        ("cmd", "exec"),
        ("url", "http"),
        ("endpoint", "http"),
    ],
};

pub(super) const RELAY: Shape = Shape {
    path: "queues.NAME.relay",
    title: "a relay",
    keys: &["publish", "event_store", "timeout", "headers"],
    also_known: &[("url", "publish"), ("http", "publish"), ("to", "publish"), ("transport", "publish")],
};

pub(super) const POOL: Shape = Shape {
    path: "queues.NAME.handler.pool",
    title: "a pool",
    keys: &["size"],
    also_known: &[("processes", "size"), ("count", "size")],
};
