//! `relay`: a queue as an outbox. Its messages are handed on to an event store and a transport.

use std::time::Duration;

use super::handler::{HandlerConfig, check_url, read_headers};
use super::problem::{Finding, Sort};
use super::read::{Field, Section};
use super::shape;

/// Reads a relay block, which stands where a handler would.
pub(super) fn read(queue: &Section<'_>, field: &Field<'_>) -> Option<HandlerConfig> {
    if let Some(handler) = queue.get("handler") {
        let finding = Finding::new(field.key_span(), "a queue has a `handler` or a `relay`, not both");
        let finding = finding.sort(Sort::Clash).related(handler.key_span(), "the handler is given here");
        queue.report(finding);
        return None;
    }
    let section = field.section(&shape::RELAY)?;
    let timeout = section.get("timeout").map(|field| field.duration(Duration::from_millis(1)));
    let headers = section.get("headers").map(|field| read_headers(&field));
    let event_store = section.get("event_store").map(|field| url(&field));
    let Some(publish) = section.get("publish") else {
        let finding = Finding::new(section.span(), "a relay needs `publish`").sort(Sort::Clash);
        section.report(finding.help("for example `publish = \"http://127.0.0.1:8080/events\"`"));
        return None;
    };
    Some(HandlerConfig::Relay {
        publish: url(&publish)?,
        event_store: event_store.map_or(Some(None), |url| url.map(Some))?,
        timeout: timeout.map_or(Some(None), |timeout| timeout.map(Some))?,
        headers: headers.unwrap_or(Some(Vec::new()))?,
    })
}

fn url(field: &Field<'_>) -> Option<String> {
    let url = field.text()?;
    if let Some(finding) = check_url(field, url) {
        field.report(finding);
        return None;
    }
    Some(url.to_owned())
}
