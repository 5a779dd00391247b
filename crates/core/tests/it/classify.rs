//! How raw errors become failures (A5): the presets as a table, rules, and rules that never speak.

use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;
use sickbay_core::classify::{
    Classifier, Matched, RULES_MAX, RawError, Rule, StatusMatch, presets, unreachable_rules,
};
use sickbay_core::{Kind, MessageType, Reason};

use Kind::{Poison, Transient, Unknown};
use Reason::{
    DependencyFailure, HandlerException, SerializationError, TimeoutExceeded, TransportUnavailable,
    ValidationFailure,
};

fn raw(text: &str) -> RawError {
    RawError::new(text)
}

fn check(error: RawError, kind: Kind, reason: Reason) {
    let classifier = Classifier::default();
    let (by, shown) = (classifier.explain(None, &error), format!("{error:?}"));
    let failure = classifier.classify(None, error);
    assert_eq!((failure.kind, failure.reason), (kind, reason), "{shown} by {by:?}");
}

#[test]
fn words_that_speak_of_a_passing_trouble_are_transient() {
    let network = [
        "read ECONNRESET",
        "connect ECONNREFUSED 10.0.0.7:5432",
        "write EPIPE",
        "Network error",
        "network is unreachable",
        "Connection reset by peer (os error 104)",
        "tcp connect error: Connection refused (os error 111)",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "Broken pipe (os error 32)",
        "getaddrinfo EAI_AGAIN payments.internal",
        "dial tcp: lookup payments: no such host",
        "host not found",
        "socket hang up",
        "Network timeout",
        "the request timed out",
        "timeout",
        "connect ETIMEDOUT",
        "timeout of 5000ms exceeded",
        "context deadline exceeded",
        "Resource temporarily unavailable",
        "the service is unavailable",
        "503 Service Unavailable",
        "HTTP 503",
        "HTTP/1.1 502 Bad Gateway",
        "status code: 504",
        "server closed connection",
        "MySQL server has gone away",
    ];
    for text in network {
        check(raw(text), Transient, TransportUnavailable);
    }
    let dependency = [
        "downstream_5xx",
        "got a 5xx from payments",
        "Internal Server Error",
        "HTTP 500",
        "Request failed with status code 500",
        "500",
        "429 Too Many Requests",
        "Rate limit exceeded, slow down",
        "rate_limit",
        "ERROR: deadlock detected",
        "Lock wait timeout exceeded; try restarting transaction",
        "ERROR: serialization failure",
        "could not serialize access due to concurrent update",
        "SQLSTATE 40001",
        "(code: 40001) retry the transaction",
        "database is locked",
        "WriteConflict error: this operation conflicted with another operation",
    ];
    for text in dependency {
        check(raw(text), Transient, DependencyFailure);
    }
}

#[test]
fn words_that_speak_of_a_wrong_message_are_poison() {
    let rows = [
        (SerializationError, "deserialization of OrderPaid failed"),
        (SerializationError, "Deserialization failure in field total"),
        (SerializationError, "json: cannot unmarshal string into Go value"),
        (SerializationError, "Unexpected token < in JSON at position 0"),
        (SerializationError, "failed to parse the body"),
        (SerializationError, "expected value at line 1 column 1"),
        (ValidationFailure, "Invalid format"),
        (ValidationFailure, "Bad Request"),
        (ValidationFailure, "HTTP 400"),
        (ValidationFailure, "status=422"),
        (ValidationFailure, "schema_missing_field"),
        (ValidationFailure, "jsonschema.exceptions.ValidationError: -5 is less than 1"),
        (ValidationFailure, "invalid customer id"),
        (ValidationFailure, "missing_fields"),
        (HandlerException, "Unauthorized"),
        (HandlerException, "403 Forbidden"),
        (HandlerException, "the customer was not found"),
        (HandlerException, "Request failed with status code 404"),
        (HandlerException, "HTTP status client error (404 Not Found) for url"),
        (HandlerException, "googleapi: Error 403: no access"),
        (HandlerException, "409 Conflict"),
        (HandlerException, "version conflict"),
        (HandlerException, r#"{"statusCode":410,"message":"gone"}"#),
        (HandlerException, "downstream_4xx"),
    ];
    for (reason, text) in rows {
        check(raw(text), Poison, reason);
    }
}

#[test]
fn a_handler_out_of_its_time_budget_is_not_retried_but_a_network_time_out_is() {
    check(raw("handler timeout").reason(TimeoutExceeded), Poison, TimeoutExceeded);
    check(raw("Execution exceeded maximum duration of 60 s"), Poison, TimeoutExceeded);
    check(raw("ran out of its time budget"), Poison, TimeoutExceeded);
    check(raw("Network timeout"), Transient, TransportUnavailable);
    check(raw("timeout"), Transient, TransportUnavailable);
    check(raw("timed out").reason(TransportUnavailable), Transient, TransportUnavailable);
}

#[test]
fn a_number_is_a_status_only_where_it_stands_like_one() {
    let no_status = [
        "order 4000 could not be shipped",
        "order 400 could not be shipped",
        "order 404",
        "item 500 is out of stock",
        "returned 400 rows",
        "400 rows rejected",
        "429 orders stuck",
        "id 4045031",
        "customer 503-22 has no address",
        "error: 400.50 EUR is above the limit",
        "took 500ms",
        "no stock in warehouse 40001",
        "x404y",
        "port 5000",
        "total was 422 EUR",
    ];
    for text in no_status {
        check(raw(text), Unknown, HandlerException);
    }
    let statuses = [
        ("error 404: no such order", Poison),
        ("upstream answered with 503", Transient),
        ("got 502 from payments", Transient),
        ("got 404 from payments", Poison),
        ("failed with 500.", Transient),
        ("An error occurred (429) when calling Invoke", Transient),
        ("status: 400, order 500", Poison),
        ("HTTP/2 409", Poison),
        ("http_status=503", Transient),
        ("503: order 400", Transient),
        ("response code 418", Poison),
    ];
    for (text, kind) in statuses {
        let failure = Classifier::default().classify(None, raw(text));
        assert_eq!(failure.kind, kind, "{text}");
    }
}

#[test]
fn the_specific_wins_over_the_general() {
    check(raw("503 Service Unavailable: session not found"), Transient, TransportUnavailable);
    check(raw("400 Bad Request: timeout must be positive"), Poison, ValidationFailure);
    check(raw("invalid value for timeout"), Poison, ValidationFailure);
    check(raw("schema registry unavailable"), Transient, TransportUnavailable);
    check(raw("not found").http_status(503), Transient, TransportUnavailable);
    check(raw("connection refused").http_status(404), Poison, HandlerException);
    check(raw("connection refused").exit_code(65), Poison, ValidationFailure);
    check(raw("HTTP 503").reason(SerializationError), Poison, SerializationError);
    check(raw("invalid").code("ECONNRESET"), Transient, TransportUnavailable);
}

#[test]
fn http_statuses_follow_the_contract_of_http_handlers() {
    for status in 100..=599 {
        let expected = match status {
            408 | 425 | 429 | 500..=599 => Transient,
            400..=499 => Poison,
            _ => Unknown,
        };
        let failure = Classifier::default().classify(None, raw("").http_status(status));
        assert_eq!(failure.kind, expected, "{status}");
        assert_eq!(failure.code, Some(format!("HTTP {status}")));
    }
}

#[test]
fn exit_codes_follow_sysexits_and_the_output_is_not_held_against_the_message() {
    check(raw("boom").exit_code(75), Transient, DependencyFailure);
    check(raw("total must be positive").exit_code(65), Poison, ValidationFailure);
    check(raw("could not parse the body").exit_code(65), Poison, SerializationError);
    for code in (1..=255).filter(|code| ![65, 75].contains(code)) {
        check(raw("sh: order-tool: not found").exit_code(code), Unknown, HandlerException);
    }
    check(raw("invalid").signal(9), Unknown, HandlerException);
    let killed = Classifier::default().classify(None, raw("").signal(9));
    assert_eq!(killed.code.as_deref(), Some("signal 9"));
}

#[test]
fn codes_are_known_in_any_case() {
    check(raw("").code("econnreset"), Transient, TransportUnavailable);
    check(raw("").code("40001"), Transient, DependencyFailure);
    check(raw("").code("SQLITE_BUSY_SNAPSHOT"), Transient, DependencyFailure);
    check(raw("").code("DOWNSTREAM_TRANSIENT"), Transient, DependencyFailure);
    check(raw("").code("DOWNSTREAM_PERMANENT"), Poison, HandlerException);
    check(raw("").code("NO_STOCK"), Unknown, HandlerException);
}

#[test]
fn what_the_caller_knows_decides() {
    for reason in Reason::ALL {
        let failure = Classifier::default().classify(None, raw("boom").reason(*reason));
        assert_eq!(failure.reason, *reason, "it is kept");
        let expected = match reason {
            TransportUnavailable | DependencyFailure => Transient,
            HandlerException | Reason::Crash | Reason::Unknown => Unknown,
            _ => Poison,
        };
        assert_eq!(failure.kind, expected, "{reason}");
    }
}

#[test]
fn everything_else_is_unknown() {
    for text in ["", "boom", "java.lang.NullPointerException", "division by zero", "Ärger \u{0} 💥"] {
        check(raw(text), Unknown, HandlerException);
        assert_eq!(Classifier::default().explain(None, &raw(text)), None);
    }
}

#[test]
fn words_code_and_retry_after_come_through() {
    let failure = Classifier::default()
        .classify(None, raw("slow down").http_status(429).code("BUSY").retry_after(Duration::from_secs(9)));
    assert_eq!((failure.error.as_str(), failure.code.as_deref()), ("slow down", Some("BUSY")));
    assert_eq!(failure.retry_after, Some(Duration::from_secs(9)));
}

#[test]
fn every_preset_compiles_has_a_name_and_can_be_reached() {
    let names: Vec<_> = presets().iter().map(|rule| rule.name.clone().unwrap()).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len(), "names are unique");
    Classifier::new(presets()).expect("each of them is a valid rule");
    assert_eq!(unreachable_rules(presets()), []);
    let last = Classifier::default().explain(None, &raw("timeout")).unwrap();
    assert_eq!(last.index, presets().len() - 1, "none was left out when they were compiled");
}

#[test]
fn presets_survive_being_printed() {
    let json = serde_json::to_string(presets()).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Rule>>(&json).unwrap(), presets());
}

fn one(rule: Rule) -> Classifier {
    Classifier::new(&[rule]).unwrap()
}

#[test]
fn a_queues_own_rules_come_before_the_presets_and_the_first_wins() {
    let rules = [
        Rule::new(Poison).name("duplicates").text("Duplicate Invoice"),
        Rule::new(Transient).text("invoice"),
        Rule::new(Unknown).regex("^connection").set_reason(HandlerException),
    ];
    let classifier = Classifier::new(&rules).unwrap();
    let explain = |text: &str| classifier.explain(None, &raw(text)).unwrap();
    assert_eq!(
        explain("DUPLICATE INVOICE 7"),
        Matched { rule: "duplicates".into(), preset: false, index: 0 }
    );
    assert_eq!(explain("invoice locked"), Matched { rule: "rule 2".into(), preset: false, index: 1 });
    assert_eq!(classifier.classify(None, raw("Connection refused")).kind, Unknown);
    assert!(explain("broken pipe").preset);
}

#[test]
fn a_rule_matches_only_if_all_its_conditions_do() {
    let order = MessageType::new("OrderPaid").unwrap();
    let rule = Rule::new(Poison)
        .text("nope")
        .regex("n.pe")
        .exit_code(3)
        .http_status("5xx".parse().unwrap())
        .code("E1*")
        .message_type("Order*")
        .reason(HandlerException);
    let full = raw("NOPE").exit_code(3).http_status(503).code("e17").reason(HandlerException);
    let matched = |message_type, error: RawError| {
        one(rule.clone()).explain(message_type, &error).is_some_and(|matched| !matched.preset)
    };
    assert!(matched(Some(&order), full.clone()));
    let misses = [
        RawError { text: "nape".into(), ..full.clone() },
        full.clone().exit_code(4),
        RawError { exit_code: None, ..full.clone() },
        full.clone().http_status(404),
        RawError { http_status: None, ..full.clone() },
        full.clone().code("E2"),
        full.clone().reason(Reason::Unknown),
        RawError { reason: None, ..full.clone() },
    ];
    for miss in misses {
        assert!(!matched(Some(&order), miss.clone()), "{miss:?}");
    }
    let lower = MessageType::new("orderPaid").unwrap();
    assert!(!matched(Some(&lower), full.clone()), "types have their case");
    assert!(!matched(None, full), "a rule for a type asks for one");
}

#[test]
fn a_rule_that_sets_no_reason_leaves_it_to_the_caller_and_then_to_the_presets() {
    let rule = || Rule::new(Transient).http_status("404".parse().unwrap());
    let reason = |rule: Rule, error: RawError| one(rule).classify(None, error).reason;
    assert_eq!(
        reason(rule().set_reason(TransportUnavailable), raw("").http_status(404)),
        TransportUnavailable
    );
    assert_eq!(reason(rule(), raw("").http_status(404).reason(DependencyFailure)), DependencyFailure);
    let text = Rule::new(Poison).text("refused");
    assert_eq!(reason(text.clone(), raw("connection refused").reason(Reason::Crash)), Reason::Crash);
    assert_eq!(reason(text, raw("connection refused")), TransportUnavailable);
    assert_eq!(reason(Rule::new(Poison).text("boom"), raw("boom")), HandlerException);
}

#[test]
fn what_is_seen_as_the_code_can_be_matched_as_one() {
    let classifier = one(Rule::new(Transient).name("out of memory").code("signal 9"));
    assert_eq!(classifier.classify(None, raw("").signal(9)).kind, Transient);
    assert_eq!(classifier.classify(None, raw("").signal(11)).kind, Unknown);
}

#[test]
fn a_wrong_rule_is_refused_with_its_number_name_and_what_is_wrong() {
    let rows = [
        (Rule::new(Poison), "rule 2: it has no condition, so it would match every error"),
        (Rule::new(Poison).name("a").text(""), r#"rule 2 ("a"): text is empty"#),
        (Rule::new(Poison).regex(""), "rule 2: regex is empty"),
        (Rule::new(Poison).regex("é(x"), r#"rule 2: regex "é(x" is wrong at character 2: unclosed group"#),
        (Rule::new(Poison).code("A*B"), r#"rule 2: code "A*B" has a * before its end"#),
        (Rule::new(Poison).message_type(""), r#"rule 2: message_type "" is empty"#),
        (Rule::new(Poison).message_type("Order Paid"), "rule 2: message type \"Order Paid\" contains ' '"),
        (Rule::new(Poison).regex(r"\w{500}{500}"), "becomes larger than 1048576 bytes"),
        (Rule::new(Poison).regex("x".repeat(5000)), "regex is 5000 bytes long; at most 4096 are allowed"),
        (Rule::new(Poison).regex(r"(?=x)"), "look-around"),
    ];
    for (rule, expected) in rows {
        let error = Classifier::new(&[Rule::new(Poison).text("ok"), rule]).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}\n  should contain {expected}");
        assert_eq!(error.index(), 1);
    }
    let many = vec![Rule::new(Poison).text("x"); RULES_MAX + 1];
    assert!(Classifier::new(&many).unwrap_err().to_string().contains("at most 1000"));
}

#[test]
fn statuses_are_read_as_people_write_them() {
    let read = |json: &str| serde_json::from_str::<StatusMatch>(json);
    for (json, shown) in [
        ("503", "503"),
        (r#""503""#, "503"),
        (r#""5xx""#, "5xx"),
        (r#""5XX""#, "5xx"),
        (r#""500..599""#, "5xx"),
        (r#""500-504""#, "500..504"),
        (r#""500 .. 504""#, "500..504"),
        (r#""500..=504""#, "500..504"),
    ] {
        let status = read(json).unwrap();
        assert_eq!(status.to_string(), shown, "{json}");
        assert_eq!(shown.parse(), Ok(status));
    }
    for json in
        ["99", "600", "-1", "65536", r#""504..500""#, r#""xx""#, r#""9xx""#, r#""""#, r#""OK""#, "null", "[]"]
    {
        assert!(read(json).is_err(), "{json}");
    }
    let range: StatusMatch = "500..504".parse().unwrap();
    assert!(range.matches(500) && range.matches(504) && !range.matches(499) && !range.matches(505));
}

#[test]
fn an_unknown_field_of_a_rule_is_refused() {
    let error = serde_json::from_str::<Rule>(r#"{"txt":"x","kind":"poison"}"#).unwrap_err();
    assert!(error.to_string().contains("unknown field `txt`"), "{error}");
    assert!(serde_json::from_str::<Rule>(r#"{"text":"x"}"#).is_err(), "a rule says a kind");
}

#[test]
fn rules_that_can_never_speak_are_found() {
    let t = |text: &str| Rule::new(Poison).text(text);
    let status = |text: &str| Rule::new(Poison).http_status(text.parse().unwrap());
    let of = |pattern: &str| Rule::new(Poison).message_type(pattern);
    let code = |pattern: &str| Rule::new(Poison).code(pattern);
    let rows: Vec<(&str, Rule, Rule, bool)> = vec![
        ("the same", t("a"), t("a").set_reason(Reason::Unknown), true),
        ("in another case", t("NETWORK"), t("Network"), true),
        ("a longer text", t("timeout"), t("lock timeout exceeded"), true),
        ("a shorter text", t("lock timeout"), t("timeout"), false),
        ("one condition more", t("a"), t("a").exit_code(3), true),
        ("one condition less", t("a").exit_code(3), t("a"), false),
        ("another condition", t("a"), Rule::new(Poison).exit_code(3), false),
        ("a status in a range", status("5xx"), status("503"), true),
        ("a range over a status", status("503"), status("5xx"), false),
        ("ranges that overlap", status("500..504"), status("503..510"), false),
        ("a type with the beginning", of("Order*"), of("OrderPaid"), true),
        ("a narrower beginning", of("Order*"), of("OrderP*"), true),
        ("a wider beginning", of("OrderP*"), of("Order*"), false),
        ("exact before open", of("Order"), of("Order*"), false),
        ("another case of a type", of("order*"), of("OrderPaid"), false),
        ("another case of a code", code("sqlite_*"), code("SQLITE_BUSY"), true),
        ("the same expression", Rule::new(Poison).regex("a+"), Rule::new(Transient).regex("a+"), true),
        ("another expression", Rule::new(Poison).regex(".*"), Rule::new(Transient).regex("a"), false),
        ("a text that an expression implies", t("a"), Rule::new(Transient).regex("a"), false),
        ("the same reason", Rule::new(Poison).reason(Reason::Crash), t("x").reason(Reason::Crash), true),
    ];
    for (name, earlier, later, expected) in rows {
        let found = unreachable_rules(&[earlier, later]);
        assert_eq!(found, if expected { vec![(0, 1)] } else { vec![] }, "{name}");
    }
    let several = [t("a"), t("b"), t("ab"), t("b")];
    assert_eq!(unreachable_rules(&several), [(0, 2), (1, 3)], "each once, with the first that covers it");
}

#[test]
fn hostile_text_is_classified_by_its_beginning() {
    let mut huge = "é".repeat(1 << 17);
    check(raw(&huge), Unknown, HandlerException);
    huge.push_str("connection refused");
    check(raw(&huge), Unknown, HandlerException);
    let begins = format!("connection refused {huge}");
    check(raw(&begins), Transient, TransportUnavailable);
}

fn rule() -> impl Strategy<Value = Rule> {
    let text = prop::option::of(prop::sample::select(vec!["a", "A", "ab", "b", "aba"]));
    let code = prop::option::of(prop::sample::select(vec!["a", "A*", "ab*", "*", "AB"]));
    let message_type = prop::option::of(prop::sample::select(vec!["a", "a*", "ab*", "*", "ab"]));
    let status = prop::option::of(prop::sample::select(vec!["500", "5xx", "500..503", "503"]));
    (text, code, message_type, status).prop_map(|(text, code, message_type, status)| Rule {
        text: text.map(str::to_owned),
        code: code.map(str::to_owned),
        message_type: message_type.map(str::to_owned),
        http_status: status.map(|status| status.parse().unwrap()),
        ..Rule::new(Poison)
    })
}

static ONE_BY_ONE: LazyLock<Classifier> = LazyLock::new(|| Classifier::new(presets()).unwrap());

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_rule_called_unreachable_never_decides(
        rules in prop::collection::vec(rule().prop_filter("no condition", |rule| *rule != Rule::new(Poison)), 2..6),
        text in "[abAB]{0,4}",
        code in "[abAB]{0,3}",
        message_type in "[ab]{1,3}",
        status in prop::sample::select(vec![499u16, 500, 503, 504, 599]),
    ) {
        let classifier = Classifier::new(&rules).unwrap();
        let error = raw(&text).code(code).http_status(status);
        let message_type = MessageType::new(message_type).unwrap();
        let decided = classifier.explain(Some(&message_type), &error).filter(|matched| !matched.preset);
        if let Some(matched) = decided {
            let silent: Vec<usize> = unreachable_rules(&rules).iter().map(|(_, later)| *later).collect();
            prop_assert!(!silent.contains(&matched.index), "{:?}", rules);
        }
    }

    #[test]
    fn asking_the_presets_at_once_and_one_by_one_is_the_same(
        words in prop::collection::vec(prop::sample::select(vec![
            "HTTP", "503", "404", "error", "timeout", "invalid", "not found", "connection refused", "order", "schema",
            "deadlock", "time budget", "unavailable", "rate limit", "malformed", ":", "got", "from", "\n", "ü",
        ]), 0..8),
    ) {
        let error = raw(&words.join(" "));
        let one_by_one = ONE_BY_ONE.explain(None, &error);
        let at_once = Classifier::default().explain(None, &error);
        prop_assert_eq!(at_once.map(|matched| matched.index), one_by_one.map(|matched| matched.index));
    }

    #[test]
    fn no_text_makes_the_presets_stumble(text in any::<String>(), code in any::<Option<String>>()) {
        let failure = Classifier::default().classify(None, RawError { code, ..raw(&text) });
        prop_assert_eq!(failure.error, text);
    }
}
