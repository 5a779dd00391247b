//! The taxonomy of errors (A6), and the words of failures.

use sickbay_core::error::{ErrorDetails, PoisonSubject};
use sickbay_core::{ErrorKind, Failure, Kind, Reason, StoreError};

fn poison(last_error: Option<&str>, subject: PoisonSubject) -> ErrorDetails {
    ErrorDetails::Poison { count: 4, limit: 3, last_error: last_error.map(str::to_owned), subject }
}

fn all() -> Vec<(ErrorDetails, &'static str, bool)> {
    let infrastructure = |retryable| ErrorDetails::Infrastructure {
        operation: "claim".to_owned(),
        message: "disk full".to_owned(),
        retryable,
    };
    let application = |retryable| ErrorDetails::Application { message: "no stock".to_owned(), retryable };
    vec![
        (infrastructure(true), "infrastructure", true),
        (infrastructure(false), "infrastructure", false),
        (ErrorDetails::Configuration { message: "no such queue".to_owned() }, "configuration", false),
        (application(true), "application", true),
        (application(false), "application", false),
        (poison(None, PoisonSubject::Orchestration), "poison", false),
        (poison(Some("boom"), PoisonSubject::Message { message_type: None }), "poison", false),
        (
            poison(Some("boom"), PoisonSubject::Message { message_type: Some("Order".to_owned()) }),
            "poison",
            false,
        ),
        (
            poison(Some("boom"), PoisonSubject::Activity { name: "Charge".to_owned(), id: u64::MAX }),
            "poison",
            false,
        ),
    ]
}

#[test]
fn every_error_has_its_category_and_poison_is_never_retryable() {
    for (error, category, retryable) in all() {
        assert_eq!((error.category(), error.is_retryable()), (category, retryable), "{error:?}");
    }
}

#[test]
fn errors_survive_being_stored_and_name_their_category() {
    for (error, category, _) in all() {
        let json = serde_json::to_value(&error).unwrap();
        assert_eq!(json["category"], category);
        assert_eq!(serde_json::from_value::<ErrorDetails>(json).unwrap(), error);
    }
}

#[test]
fn a_poison_error_says_how_often_and_why() {
    let error = poison(Some("connection refused"), PoisonSubject::Orchestration);
    assert_eq!(error.to_string(), "poison: 4 of 3 attempts; last error: connection refused");
    assert_eq!(poison(None, PoisonSubject::Orchestration).to_string(), "poison: 4 of 3 attempts");
}

#[test]
fn a_store_error_shows_its_code_and_says_what_to_do() {
    let error = StoreError::new(ErrorKind::TryAgain, "SB0007", "the store is busy");
    assert_eq!(error.to_string(), "the store is busy (SB0007)");
    assert_eq!((error.kind(), error.code()), (ErrorKind::TryAgain, "SB0007"));
}

#[test]
fn kinds_and_reasons_are_read_in_any_case_and_a_wrong_one_names_the_choices() {
    for kind in Kind::ALL {
        assert_eq!(kind.as_str().to_uppercase().parse(), Ok(*kind));
    }
    for reason in Reason::ALL {
        assert_eq!(reason.as_str().to_lowercase().parse(), Ok(*reason));
        let json = serde_json::to_string(reason).unwrap();
        assert_eq!(json, format!("\"{reason}\""), "one word everywhere");
    }
    let error = "flaky".parse::<Kind>().unwrap_err().to_string();
    assert_eq!(error, r#""flaky" is no failure kind; choose one of transient, poison, unknown"#);
}

#[test]
fn a_failure_survives_being_stored() {
    let mut failure = Failure::transient("busy")
        .reason(Reason::TransportUnavailable)
        .code("HTTP 503")
        .retry_after(std::time::Duration::from_millis(1500));
    failure.schema_path = Some("/a/0".to_owned());
    let json = serde_json::to_string(&failure).unwrap();
    assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure);
}
