//! A message as a request.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};

use crate::context::Context;
use crate::foreign::{Spelling, facts, header, headers, trace_context};

/// The request for a message. The headers of the endpoint's own come last and win.
pub(super) fn request(ctx: &Context, uri: &Uri, own: &HeaderMap) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(ctx.payload().clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.clone();
    let map = request.headers_mut();
    map.insert(USER_AGENT, HeaderValue::from_static(concat!("sickbay/", env!("CARGO_PKG_VERSION"))));
    map.insert(CONTENT_TYPE, content_type(ctx));
    for (name, value) in facts(ctx) {
        if let Some(value) = value {
            insert(map, &format!("x-sickbay-{}", name.to_ascii_lowercase().replace('_', "-")), &value);
        }
    }
    let (parent, state) = trace_context(ctx);
    for (name, value) in [("traceparent", parent), ("tracestate", state)] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            map.insert(name, value);
        }
    }
    let (headers, left_out) = headers(ctx, Spelling::Http);
    for (name, value) in headers {
        insert(map, &format!("x-sickbay-header-{name}"), value);
    }
    if left_out > 0 {
        insert(map, "x-sickbay-headers-left-out", &left_out.to_string());
    }
    for (name, value) in own {
        map.insert(name, value.clone());
    }
    request
}

/// What the message says it is, or what it looks like.
fn content_type(ctx: &Context) -> HeaderValue {
    let said = header(ctx, "content-type").and_then(|said| HeaderValue::from_str(said).ok());
    said.unwrap_or_else(|| {
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(ctx.payload()).is_ok();
        HeaderValue::from_static(if is_json { "application/json" } else { "application/octet-stream" })
    })
}

fn insert(map: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(encoded(value))) {
        map.insert(name, value);
    }
}

/// Nothing but printable ASCII reaches a header: the rest is percent-encoded, and so is the percent
/// sign, so that the endpoint can have the exact text back.
fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if (0x20..0x7f).contains(&byte) && byte != b'%' {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::encoded;

    #[test]
    fn nothing_but_printable_ascii_reaches_a_header() {
        assert_eq!(encoded("plain text, 100%"), "plain text, 100%25");
        assert_eq!(encoded("a\r\nSet-Cookie: x"), "a%0D%0ASet-Cookie: x");
        assert_eq!(encoded("grün"), "gr%C3%BCn");
    }
}
