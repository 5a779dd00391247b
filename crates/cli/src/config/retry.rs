//! Retry blocks and the overrides that hold them (A7).

use std::time::Duration;

use sickbay::{Backoff, MessageType, RetryOverride, RetryPolicy};

use super::duration::show_duration;
use super::problem::{Finding, Sort};
use super::read::{Field, Section, Span};
use super::rules::reason;
use super::shape;

/// Reads `retry = { attempts = 5, backoff = "30s" }`.
pub(super) fn read(field: &Field<'_>) -> Option<RetryPolicy> {
    if field.value().is_integer() {
        let shown = field.reader().text().get(field.span()).unwrap_or("5");
        let finding = field.expected("a table").help(format!("write `retry = {{ attempts = {shown} }}`"));
        field.report(finding);
        return None;
    }
    let section = field.section(&shape::RETRY)?;
    let standard = RetryPolicy::default();
    let attempts = section.get("attempts").and_then(|field| field.count(0..=1_000_000));
    let backoff = read_backoff(&section);
    let wait = match backoff.unwrap_or(standard.backoff) {
        Backoff::Cooldown(wait) | Backoff::Exponential(wait) => wait,
    };
    let cap = section.get("cap").and_then(|field| {
        let cap = field.duration(Duration::from_millis(1))?;
        if backoff.is_some() && cap < wait {
            let message = format!("the cap is shorter than the first wait of {}", show_duration(wait));
            let finding = Finding::new(field.span(), message).sort(Sort::Clash);
            field.report(finding.help("`cap` is the longest wait"));
        }
        Some(cap)
    });
    let jitter = section.get("jitter").and_then(|field| field.share());
    Some(RetryPolicy {
        attempts: attempts.unwrap_or(standard.attempts),
        backoff: backoff.unwrap_or(standard.backoff),
        // Whoever asks for a wait of two hours and says nothing of a cap means two hours.
        cap: cap.unwrap_or(standard.cap.max(wait)),
        jitter: jitter.unwrap_or(standard.jitter),
    })
}

fn read_backoff(section: &Section<'_>) -> Option<Backoff> {
    let (cooldown, backoff) = (section.get("cooldown"), section.get("backoff"));
    if let (Some(cooldown), Some(backoff)) = (&cooldown, &backoff) {
        let (first, second) = in_order(cooldown, backoff);
        let finding =
            Finding::new(second.key_span(), "a retry block has a `cooldown` or a `backoff`, not both");
        section.report(
            finding
                .related(first.key_span(), format!("`{}` is given here", first.key()))
                .help("`cooldown` waits the same each time, `backoff` doubles the wait"),
        );
    }
    let cooldown = cooldown.and_then(|field| field.duration(Duration::ZERO)).map(Backoff::Cooldown);
    let backoff = backoff.and_then(|field| field.duration(Duration::from_millis(1)));
    cooldown.or(backoff.map(Backoff::Exponential))
}

fn in_order<'f, 's>(a: &'f Field<'s>, b: &'f Field<'s>) -> (&'f Field<'s>, &'f Field<'s>) {
    if a.key_span().start <= b.key_span().start { (a, b) } else { (b, a) }
}

/// Reads the list `overrides`.
pub(super) fn read_overrides(field: &Field<'_>) -> Option<Vec<RetryOverride>> {
    let mut known: Vec<(RetryOverride, Span)> = Vec::new();
    for item in field.items("a list of overrides")? {
        let Some(section) = item.section(&shape::OVERRIDE) else { continue };
        let Some(read) = read_override(&section) else { continue };
        if let Some((earlier, place)) = known.iter().find(|(earlier, _)| covers(earlier, &read)) {
            let message = if (&earlier.message_type, earlier.reason) == (&read.message_type, read.reason) {
                "this override is given twice, and only the first applies"
            } else {
                "this override can never apply, because an earlier one covers it"
            };
            section.report(
                Finding::new(section.place_of(&["message_type", "reason"]), message)
                    .related(place.clone(), "the earlier one is here")
                    .help("the first override that matches wins; put the narrower one first"),
            );
        }
        known.push((read, section.place_of(&["message_type", "reason"])));
    }
    Some(known.into_iter().map(|(read, _)| read).collect())
}

fn read_override(section: &Section<'_>) -> Option<RetryOverride> {
    let (type_field, reason_field) = (section.get("message_type"), section.get("reason"));
    if type_field.is_none() && reason_field.is_none() {
        let finding = Finding::new(section.span(), "an override needs a `message_type`, a `reason` or both")
            .sort(Sort::Clash);
        section.report(finding.help("what applies to every failure is the queue's own `retry`"));
    }
    let retry = section.demand("retry", "`retry = { attempts = 10, cooldown = \"10s\" }`");
    let message_type = match type_field {
        Some(field) => Some(read_type(&field)?),
        None => None,
    };
    let reason = match reason_field {
        Some(field) => Some(reason(&field)?),
        None => None,
    };
    let retry = read(&retry?)?;
    (message_type.is_some() || reason.is_some()).then_some(RetryOverride { message_type, reason, retry })
}

fn read_type(field: &Field<'_>) -> Option<MessageType> {
    let read = MessageType::new(field.text()?);
    if let Err(error) = &read {
        let help = "an override names one message type in full";
        let finding = Finding::new(field.span(), error.to_string());
        field.report(if field.text()?.contains('*') { finding.help(help) } else { finding });
    }
    read.ok()
}

fn covers(earlier: &RetryOverride, later: &RetryOverride) -> bool {
    let type_covers = earlier.message_type.is_none() || earlier.message_type == later.message_type;
    let reason_covers = earlier.reason.is_none() || earlier.reason == later.reason;
    type_covers && reason_covers
}
