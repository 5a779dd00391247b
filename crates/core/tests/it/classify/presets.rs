//! The presets as a table.

use std::time::Duration;

use sickbay_core::classify::{Classifier, Rule, presets, unreachable_rules};
use sickbay_core::{Kind, Reason};

use super::{check, raw};
use Kind::{Poison, Transient, Unknown};
use Reason::{
    DependencyFailure, HandlerException, SerializationError, TimeoutExceeded, TransportUnavailable,
    ValidationFailure,
};

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
