//! How raw errors become failures (A5): rules, and rules that never speak.

mod presets;

use std::sync::LazyLock;

use proptest::prelude::*;
use sickbay_core::classify::{
    Classifier, Matched, RULES_MAX, RawError, Rule, StatusMatch, unreachable_rules,
};
use sickbay_core::{Kind, MessageType, Reason};

use Kind::{Poison, Transient, Unknown};
use Reason::{DependencyFailure, HandlerException, TransportUnavailable};

fn raw(text: &str) -> RawError {
    RawError::new(text)
}

fn check(error: RawError, kind: Kind, reason: Reason) {
    let classifier = Classifier::default();
    let (by, shown) = (classifier.explain(None, &error), format!("{error:?}"));
    let failure = classifier.classify(None, error);
    assert_eq!((failure.kind, failure.reason), (kind, reason), "{shown} by {by:?}");
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
        (Rule::new(Poison).regex(r"a(?-u:\xFF)"), "is wrong at character 7: pattern can match invalid UTF-8"),
    ];
    for (rule, expected) in rows {
        let error = Classifier::new(&[Rule::new(Poison).text("ok"), rule]).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}\n  should contain {expected}");
        assert_eq!(error.index(), 1);
    }
    let first = Classifier::new(&[Rule::new(Poison)]).unwrap_err();
    assert_eq!((first.index(), first.problem()), (0, "it has no condition, so it would match every error"));
    assert!(Classifier::new(&[Rule::new(Poison).regex("x".repeat(4096))]).is_ok());
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
    let error = read("null").unwrap_err().to_string();
    assert!(error.contains("expected an HTTP status such as 503"), "{error}");
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
        ("a narrower beginning of a code", code("sql*"), code("SQLITE_*"), true),
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
    // A character that goes beyond the part that is looked at is not looked at.
    let bent = format!("{}é", "x".repeat((64 << 10) - 1));
    assert_eq!(one(Rule::new(Poison).text("é")).classify(None, raw(&bent)).kind, Unknown);
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

static ONE_BY_ONE: LazyLock<Classifier> =
    LazyLock::new(|| Classifier::new(sickbay_core::classify::presets()).unwrap());

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
