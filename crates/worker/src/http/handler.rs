//! Posts each message to an endpoint.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use sickbay_core::classify::RawError;
use sickbay_core::{Clock, Reason, Verdict};

use super::client::{HttpsClient, InvalidEndpoint, client, endpoint};
use super::request::request;
use super::response::judge;
use crate::answer::Answer;
use crate::context::Context;
use crate::handler::{BoxFuture, Handler};
use crate::time::Timer;

/// Posts each message's bytes to a URL, with the metadata in `X-Sickbay-…` headers, and reads the answer
/// from the status: 2xx done; 408, 425, 429 and 5xx failed and worth another try, after `Retry-After` if
/// it is given; other 4xx poison; redirects are not followed. No connection and no answer in time are
/// worth another try too. What the answer to a failure says is the error. Connections are kept and used
/// again; certificates are checked.
///
/// ```
/// # use std::sync::Arc;
/// # use sickbay_core::Clock;
/// # use sickbay_worker::http::{HttpHandler, InvalidEndpoint};
/// # fn example(clock: Arc<dyn Clock>) -> Result<(), InvalidEndpoint> {
/// let handler = HttpHandler::new("http://localhost:8080/orders", clock)?.header("authorization", "Bearer …")?;
/// # Ok(())
/// # }
/// ```
pub struct HttpHandler {
    uri: Uri,
    client: HttpsClient,
    headers: HeaderMap,
    time_limit: Option<Duration>,
    timer: Arc<Timer>,
}

impl HttpHandler {
    /// A handler that posts to this URL, `http://` or `https://`.
    pub fn new(url: &str, clock: Arc<dyn Clock>) -> Result<Self, InvalidEndpoint> {
        Ok(Self {
            uri: endpoint(url)?,
            client: client(None)?,
            headers: HeaderMap::new(),
            time_limit: None,
            timer: Arc::new(Timer::new(clock)),
        })
    }

    /// Sends this header with every message, in place of one of the same name.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, InvalidEndpoint> {
        let refuse =
            |what: &str| InvalidEndpoint::new(format!("{name:?} cannot be sent as a header: {what}"));
        let known = HeaderName::try_from(name).map_err(|_| refuse("the name is none"))?;
        let mut value =
            HeaderValue::try_from(value).map_err(|_| refuse("its value has control characters"))?;
        value.set_sensitive(true);
        self.headers.insert(known, value);
        Ok(self)
    }

    /// How long an answer may take. Defaults to, and is at most, nine tenths of the time budget: an endpoint
    /// that is slow is tried again, whereas a handler that overruns its time budget is not.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Trusts these certificate authorities, in PEM, besides the public ones.
    pub fn root_certificates(mut self, pem: &[u8]) -> Result<Self, InvalidEndpoint> {
        self.client = client(Some(pem))?;
        Ok(self)
    }

    async fn post(&self, ctx: Context) -> Answer {
        let most = ctx.remaining() * 9 / 10;
        let limit = self.time_limit.map_or(most, |limit| limit.min(most));
        let late_at = self.timer.now().plus(limit);
        tokio::select! {
            biased;
            answer = self.exchange(&ctx) => answer.unwrap_or_else(|error| self.unavailable(error.as_ref())),
            () = ctx.cancelled() => Answer::Verdict(Verdict::Defer(Duration::ZERO)),
            () = self.timer.sleep_until(late_at) => {
                let text = format!("POST {}: no answer within {limit:?}", self.uri);
                Answer::Raw(RawError::new(text).reason(Reason::TransportUnavailable).code("ETIMEDOUT"))
            }
        }
    }

    async fn exchange(&self, ctx: &Context) -> Result<Answer, Box<dyn Error + Send + Sync>> {
        let response = self.client.request(request(ctx, &self.uri, &self.headers)).await?;
        Ok(judge(ctx, response, self.timer.now()).await?)
    }

    fn unavailable(&self, error: &(dyn Error + Send + Sync + 'static)) -> Answer {
        let text = format!("POST {}: {}", self.uri, chain(error));
        let mut raw = RawError::new(text).reason(Reason::TransportUnavailable);
        raw.code = code(error).map(str::to_owned);
        Answer::Raw(raw)
    }
}

impl Handler for HttpHandler {
    fn handle(&self, delivery: Context) -> BoxFuture<'_, Answer> {
        Box::pin(self.post(delivery))
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'a (dyn Error + 'static) = *error;
        error.source()
    })
    .take(16)
}

/// An error with its causes, each once.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for words in causes(error).map(ToString::to_string) {
        if text.is_empty() {
            text = words;
        } else if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
    }
    text
}

fn code(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let kind = causes(error).filter_map(|error| error.downcast_ref::<io::Error>()).last()?.kind();
    match kind {
        io::ErrorKind::ConnectionRefused => Some("ECONNREFUSED"),
        io::ErrorKind::ConnectionReset => Some("ECONNRESET"),
        io::ErrorKind::ConnectionAborted => Some("ECONNABORTED"),
        io::ErrorKind::BrokenPipe => Some("EPIPE"),
        io::ErrorKind::TimedOut => Some("ETIMEDOUT"),
        io::ErrorKind::HostUnreachable => Some("EHOSTUNREACH"),
        io::ErrorKind::NetworkUnreachable => Some("ENETUNREACH"),
        _ => None,
    }
}
