//! Error text is hostile (decision 9, I11).

use sickbay_core::quarantine::QuarantineFilter;
use sickbay_core::settlement::Settled;
use sickbay_core::text::{ERROR_BYTES_MAX, OUTPUT_BYTES_MAX};
use sickbay_core::{Failure, Settlement};

use super::bench::{Bench, message};
use crate::fixture::Fixture;

async fn stored(bench: &Bench<'_>, text: &str) -> String {
    let id = bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    bench.fail(&delivery, Failure::poison(text)).await;
    let view = bench.view(id).await;
    let shown = view.dead.map(|dead| dead.error).unwrap_or_default();
    assert!(!shown.contains(['\0', '\u{1b}', '\n']) && shown.chars().count() <= 400, "{shown:?}");
    view.history[0].failure.as_ref().map(|failure| failure.error.clone()).unwrap_or_default()
}

/// NUL, escape sequences, characters that reorder text.
pub async fn control_characters_in_an_error_are_escaped(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    assert_eq!(stored(&bench, "a\0b\u{1b}[31mred\r\n\tnext").await, "a\\u{0}b\\u{1b}[31mred\\u{d}\n\tnext");
    assert_eq!(stored(&bench, "abc\u{202E}fed").await, "abc\\u{202e}fed");
    assert_eq!(stored(&bench, "").await, "");
    assert_eq!(stored(&bench, "<script>alert('x')</script> '; DROP TABLE dead; --").await.len(), 50);
}

/// 50 MB of error.
pub async fn a_huge_error_is_cut_and_says_so(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let kept = stored(&bench, &"ü\0".repeat(17 << 20)).await;
    assert!(kept.len() <= ERROR_BYTES_MAX + 40, "{} bytes", kept.len());
    assert!(kept.ends_with("more bytes)"));
}

/// Every text a worker hands in is cleaned, not the error alone.
pub async fn code_path_and_output_are_cleaned_too(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    let mut failure = Failure::poison("x").code("E\0");
    failure.schema_path = Some("/items/\u{1b}".into());
    let decision = bench.decide(&delivery, failure).await;
    let mut settlement = Settlement::new(delivery.token(), decision);
    settlement.output = Some("begin ".to_owned() + &"x".repeat(100_000) + "\0end");
    assert_eq!(bench.settle(settlement).await, Settled::Applied);
    let row = bench.view(id).await.history.remove(0);
    let failure = row.failure.unwrap_or_else(|| panic!("no failure"));
    assert_eq!(failure.code.as_deref(), Some("E\\u{0}"));
    assert_eq!(failure.schema_path.as_deref(), Some("/items/\\u{1b}"));
    let output = row.output.unwrap_or_default();
    assert!(output.ends_with("x\\u{0}end") && !output.contains("begin"), "the end of it is kept");
    assert!(output.len() <= OUTPUT_BYTES_MAX + 40);
}

/// The words of operators and dead processes are as hostile.
pub async fn words_of_operators_and_evidence_are_cleaned(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a")).await;
    let _ = bench.store().dead_letter(vec![id], "no\0good \u{1b}[2J".into()).await;
    let rows = bench.quarantine(QuarantineFilter::default()).await;
    assert_eq!(rows[0].error, "no\\u{0}good \\u{1b}[2J");
    let _ = bench.store().discard(vec![id], "\0".into()).await;
}

/// Text in any language and any width.
pub async fn text_of_any_language_is_kept_as_it_is(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    for text in ["ошибка: нет связи", "エラー", "🦀 on fire", "e\u{301}tat"] {
        assert_eq!(stored(&bench, text).await, text);
    }
}
