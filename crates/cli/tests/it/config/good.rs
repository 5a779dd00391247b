//! What is right is read as it is meant.

use std::path::Path;
use std::time::Duration;

use sickbay::core::breaker::{BreakerPolicy, CountBy};
use sickbay::core::classify::Rule;
use sickbay::{Backoff, Kind, Ordering, QueuePolicy, Reason, RetryPolicy, WhenHeadQuarantined};
use sickbay_cli::config::{Config, HandlerConfig, Pool, QueueConfig, QueueSource, StoreConfig, init};

const FULL: &str = "tests/configs/good/full.toml";

fn nothing_set(_: &str) -> Option<String> {
    None
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn parse(text: &str) -> Config {
    Config::parse(Path::new("tests/configs/sickbay.toml"), text, environment).unwrap()
}

fn queue<'c>(config: &'c Config, name: &str) -> &'c QueueConfig {
    &config.queues[&name.try_into().unwrap()]
}

#[test]
fn every_setting_of_a_queue_reaches_its_policy() {
    let config = Config::load(FULL).unwrap();
    let payments = queue(&config, "payments");
    let policy = &payments.policy;
    let retry = RetryPolicy { jitter: 0.1, ..RetryPolicy::exponential(5, Duration::from_secs(30)) };
    assert_eq!(policy.retry, retry);
    assert_eq!((policy.lease, policy.time_budget), (Duration::from_secs(30), Duration::from_secs(300)));
    assert_eq!((policy.crash_budget, policy.run_max), (4, 8));
    assert_eq!(policy.ordering, Ordering::Available);
    assert_eq!(policy.when_head_quarantined, WhenHeadQuarantined::Pass);
    assert_eq!(policy.key_window, Duration::from_secs(2 * 86_400));
    assert_eq!(policy.keep_completed, Duration::from_secs(5400));
    let breaker = BreakerPolicy {
        failures_per_minute: 40,
        cool_down: Duration::from_secs(45),
        probes: 2,
        by: CountBy::Type,
    };
    assert_eq!(policy.breaker, Some(breaker));
    assert_eq!((payments.worker.concurrency, payments.worker.prefetch), (4, Some(0)));
    assert_eq!(payments.retention, Some(Duration::from_secs(90 * 86_400)));
    assert_eq!(policy.grouping[0].name(), "bank-down");
    assert!(payments.schemas[&"OrderPaid".try_into().unwrap()].path.ends_with("schemas/order-paid.json"));
}

#[test]
fn a_rules_reason_is_what_it_records_and_when_reason_is_what_it_asks_for() {
    let config = Config::load(FULL).unwrap();
    let rules = &queue(&config, "payments").policy.classification;
    let first = Rule::new(Kind::Poison).name("invoices").text("duplicate invoice");
    assert_eq!(rules[0], first.set_reason(Reason::ValidationFailure));
    assert_eq!(rules[1].reason, Some(Reason::DependencyFailure));
    assert_eq!(rules[1].set_reason, None);
    assert_eq!(rules[2].http_status.unwrap().to_string(), "5xx");
    assert_eq!(rules[3].http_status.unwrap().to_string(), "409");
}

#[test]
fn a_wait_longer_than_the_usual_cap_is_not_cut() {
    let config = Config::load(FULL).unwrap();
    let own = &queue(&config, "payments").policy.overrides[0].retry;
    assert_eq!(own.backoff, Backoff::Cooldown(Duration::from_secs(7200)));
    assert_eq!(own.cap, Duration::from_secs(7200));
}

#[test]
fn what_a_queue_leaves_out_comes_from_the_defaults_and_blocks_are_taken_whole() {
    let config = Config::load(FULL).unwrap();
    let invoices = queue(&config, "eu.invoices");
    assert_eq!(invoices.policy.lease, Duration::from_secs(60));
    assert_eq!(invoices.policy.retry.attempts, 2);
    assert_eq!(invoices.policy.breaker, None);
    assert_eq!(invoices.worker.concurrency, 2);
    let mail = queue(&config, "mail");
    let breaker = BreakerPolicy { failures_per_minute: 5, ..BreakerPolicy::default() };
    assert_eq!(mail.policy.breaker, Some(breaker));
    // The block of the queue replaces the block of the defaults, cap and jitter included.
    let text = "[defaults]\nretry = { attempts = 9, jitter = 0.5 }\n[queues.a]\nretry = { attempts = 2 }\n";
    let a = parse(text);
    assert_eq!(queue(&a, "a").policy.retry, RetryPolicy { attempts: 2, ..RetryPolicy::default() });
}

#[test]
fn a_queue_that_says_nothing_has_the_defaults_of_the_core() {
    let config = parse("[queues.a]\n");
    let a = queue(&config, "a");
    assert_eq!(a.policy, QueuePolicy::default());
    assert_eq!((a.worker.concurrency, a.worker.prefetch, a.retention), (8, None, None));
    assert_eq!((a.source, &a.handler), (QueueSource::Store, &None));
}

#[test]
fn an_external_queue_does_not_inherit_retries() {
    let config = Config::load(FULL).unwrap();
    let audit = queue(&config, "audit");
    assert_eq!(audit.source, QueueSource::RabbitMq);
    assert_eq!(audit.policy.retry, RetryPolicy::none());
    assert_eq!(audit.policy.lease, Duration::from_secs(60));
}

#[test]
fn handlers_are_found_and_their_secrets_are_not_shown() {
    let config = Config::load(FULL).unwrap();
    let Some(HandlerConfig::Exec { program, arguments, pool }) = &queue(&config, "payments").handler else {
        panic!("no program");
    };
    assert!(program.is_absolute() && program.ends_with("pay.sh"), "{program:?}");
    assert_eq!((arguments.len(), *pool), (2, Some(Pool { size: Some(4) })));
    let Some(HandlerConfig::Http { url, timeout, headers }) = &queue(&config, "eu.invoices").handler else {
        panic!("no endpoint");
    };
    assert_eq!(url, "http://[::1]:8080/pay?fast=1");
    assert_eq!(*timeout, Some(Duration::from_secs(10)));
    assert_eq!(headers[0].value.reveal(), std::env::var("PATH").unwrap());
    assert_eq!(
        format!("{headers:?}"),
        concat!(
            "[Header { name: \"x-path\", value: env:PATH }, ",
            "Header { name: \"x-plain\", value: (hidden) }]"
        )
    );
}

#[test]
fn an_empty_file_is_a_store_without_queues() {
    let config = Config::load("tests/configs/good/empty.toml").unwrap();
    assert!(config.queues.is_empty());
    let StoreConfig::Sqlite { path } = &config.store else { panic!("{:?}", config.store) };
    assert!(path.ends_with("tests/configs/good/sickbay.db"), "{path:?}");
}

#[test]
fn a_good_file_is_the_same_after_it_was_written_and_read_again() {
    for path in [FULL, "tests/configs/good/empty.toml"] {
        let config = Config::load(path).unwrap();
        let written = config.to_toml();
        let again = Config::parse(Path::new(path), &written, environment);
        assert_eq!(again.unwrap_or_else(|errors| panic!("{errors}\n{written}")), config);
        assert!(!written.contains(&std::env::var("PATH").unwrap()), "a secret is written out");
    }
}

#[test]
fn the_starter_is_right_as_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sickbay.toml");
    std::fs::write(&path, init::STARTER).unwrap();
    let config = Config::load(&path).unwrap();
    assert_eq!(queue(&config, "orders").policy.retry.attempts, 5);
}

#[test]
fn every_setting_that_the_starter_shows_as_a_comment_is_right_too() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("schemas")).unwrap();
    std::fs::write(folder.path().join("schemas/order-paid.json"), "{}").unwrap();
    let is_setting = |line: &&str| {
        let line = line.trim_start_matches("# ");
        line.starts_with('[') || line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '))
    };
    let lines = init::STARTER.lines().filter(is_setting).map(|line| line.trim_start_matches("# "));
    // What stands there as the alternative of something else is left out.
    let other = ["exec", "pool", "retry = { attempts = 3"];
    let text: Vec<&str> = lines.filter(|line| !other.iter().any(|other| line.starts_with(other))).collect();
    let known = |name: &str| (name == "ORDERS_KEY").then(|| "k".to_owned());
    let config = Config::parse(&folder.path().join("sickbay.toml"), &text.join("\n"), known).unwrap();
    let orders = queue(&config, "orders");
    assert!(orders.policy.breaker.is_some() && !orders.schemas.is_empty() && orders.retention.is_some());
    // What it shows as the default is the default.
    let policy = QueuePolicy {
        retry: orders.policy.retry,
        overrides: orders.policy.overrides.clone(),
        classification: orders.policy.classification.clone(),
        grouping: orders.policy.grouping.clone(),
        breaker: Some(BreakerPolicy::default()),
        ..QueuePolicy::default()
    };
    assert_eq!(orders.policy, policy);
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_do_no_harm() {
    let config = parse("\u{feff}[queues.a]\r\nlease = \"10s\"\r\n");
    assert_eq!(queue(&config, "a").policy.lease, Duration::from_secs(10));
    let path = Path::new("sickbay.toml");
    let errors = Config::parse(path, "\u{feff}lease = 1\r\n", nothing_set).unwrap_err();
    assert_eq!(errors.problems[0].place.as_ref().map(|place| (place.line, place.column)), Some((1, 1)));
}
