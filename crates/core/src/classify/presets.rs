//! The rules that apply when a queue's own do not. They are ordinary rules: tables below, one rule a
//! row, first match wins.

use std::sync::LazyLock;

use regex::{RegexSet, RegexSetBuilder};

use super::raw::Seen;
use super::rule::{Compiled, Rule};
use super::status::StatusMatch;
use crate::failure::{Kind, Reason};

/// The presets in the order in which they are asked.
pub fn presets() -> &'static [Rule] {
    &PRESETS
}

/// The first preset that the error meets, and its place.
pub(super) fn first_match(seen: &Seen<'_>) -> Option<(usize, &'static Rule)> {
    let Ready { plain, words } = &*READY;
    let index = plain.iter().position(|rule| rule.matches(seen));
    let index = index.or_else(|| Some(plain.len() + words.matches(seen.text).iter().next()?))?;
    presets().get(index).map(|rule| (index, rule))
}

static PRESETS: LazyLock<Vec<Rule>> =
    LazyLock::new(|| [reasons(), statuses(), exits(), codes(), words()].concat());

/// The presets compiled. Those on words, the last, are asked all at once: one pass over the text.
struct Ready {
    plain: Vec<Compiled>,
    words: RegexSet,
}

static READY: LazyLock<Ready> = LazyLock::new(|| {
    let (plain, on_words) = presets().split_at(presets().len() - words().len());
    let compiled = |(index, rule)| Compiled::preset(index, rule).ok();
    let plain = plain.iter().enumerate().filter_map(compiled).collect();
    let mut words = RegexSetBuilder::new(on_words.iter().filter_map(|rule| rule.regex.as_deref()));
    let words = words.case_insensitive(true).unicode(false).build();
    Ready { plain, words: words.unwrap_or_else(|_| RegexSet::empty()) }
});

use Kind::{Poison, Transient, Unknown};
use Reason::{
    Corrupt, DependencyFailure, Expired, HandlerException, Operator, PoisonMessage, SerializationError,
    TimeoutExceeded, TransportUnavailable, ValidationFailure,
};

/// What the caller knows needs no guessing. The time budget of a handler is not the network's
/// time-out: what ran out of it once will do so again.
const REASONS: &[(Reason, Kind)] = &[
    (TimeoutExceeded, Poison),
    (SerializationError, Poison),
    (ValidationFailure, Poison),
    (PoisonMessage, Poison),
    (Expired, Poison),
    (Corrupt, Poison),
    (Operator, Poison),
    (TransportUnavailable, Transient),
    (DependencyFailure, Transient),
];

fn reasons() -> Vec<Rule> {
    let rule = |(reason, kind): &(Reason, Kind)| {
        let name = format!("reason {reason}");
        Rule::new(*kind).name(name).reason(*reason).set_reason(*reason)
    };
    REASONS.iter().map(rule).collect()
}

const STATUSES: &[(u16, u16, Kind, Reason)] = &[
    (408, 408, Transient, TransportUnavailable),
    (425, 425, Transient, DependencyFailure),
    (429, 429, Transient, DependencyFailure),
    (502, 504, Transient, TransportUnavailable),
    (500, 599, Transient, DependencyFailure),
    (400, 400, Poison, ValidationFailure),
    (413, 415, Poison, ValidationFailure),
    (422, 422, Poison, ValidationFailure),
    (400, 499, Poison, HandlerException),
];

fn statuses() -> Vec<Rule> {
    let rule = |(first, last, kind, reason): &(u16, u16, Kind, Reason)| {
        let status = StatusMatch::new(*first, *last)?;
        let rule = Rule::new(*kind).name(format!("HTTP {status}")).http_status(status);
        Some(rule.set_reason(*reason))
    };
    STATUSES.iter().filter_map(rule).collect()
}

/// After sysexits. A process that chose another code has said no more than that it failed, and its
/// last output is too noisy to be held against the message.
fn exits() -> Vec<Rule> {
    let data = Rule::new(Poison).exit_code(65);
    vec![
        Rule::new(Transient).name("exit 75, try again later").exit_code(75).set_reason(DependencyFailure),
        data.clone().name("exit 65, unreadable data").regex(UNREADABLE).set_reason(SerializationError),
        data.name("exit 65, wrong data").set_reason(ValidationFailure),
        Rule::new(Unknown).name("another exit code").code("exit *").set_reason(HandlerException),
        Rule::new(Unknown).name("ended by a signal").code("signal *").set_reason(HandlerException),
    ]
}

/// Codes that clients, databases and gRPC give.
const CODES: &[(&str, Kind, Reason)] = &[
    ("ECONNRESET", Transient, TransportUnavailable),
    ("ECONNREFUSED", Transient, TransportUnavailable),
    ("ECONNABORTED", Transient, TransportUnavailable),
    ("EPIPE", Transient, TransportUnavailable),
    ("ETIMEDOUT", Transient, TransportUnavailable),
    ("ESOCKETTIMEDOUT", Transient, TransportUnavailable),
    ("EHOSTUNREACH", Transient, TransportUnavailable),
    ("EHOSTDOWN", Transient, TransportUnavailable),
    ("ENETUNREACH", Transient, TransportUnavailable),
    ("ENETDOWN", Transient, TransportUnavailable),
    ("EAI_AGAIN", Transient, TransportUnavailable),
    ("ENOTFOUND", Transient, TransportUnavailable),
    ("EAGAIN", Transient, DependencyFailure),
    ("EBUSY", Transient, DependencyFailure),
    ("SQLITE_BUSY*", Transient, DependencyFailure),
    ("SQLITE_LOCKED*", Transient, DependencyFailure),
    ("40001", Transient, DependencyFailure),
    ("40P01", Transient, DependencyFailure),
    ("55P03", Transient, DependencyFailure),
    ("53300", Transient, DependencyFailure),
    ("57P01", Transient, TransportUnavailable),
    ("57P02", Transient, TransportUnavailable),
    ("57P03", Transient, TransportUnavailable),
    ("08000", Transient, TransportUnavailable),
    ("08001", Transient, TransportUnavailable),
    ("08003", Transient, TransportUnavailable),
    ("08006", Transient, TransportUnavailable),
    ("UNAVAILABLE", Transient, TransportUnavailable),
    ("DEADLINE_EXCEEDED", Transient, TransportUnavailable),
    ("RESOURCE_EXHAUSTED", Transient, DependencyFailure),
    ("ABORTED", Transient, DependencyFailure),
    ("DOWNSTREAM_TRANSIENT", Transient, DependencyFailure),
    ("DOWNSTREAM_5XX", Transient, DependencyFailure),
    ("DOWNSTREAM_PERMANENT", Poison, HandlerException),
    ("INVALID_ARGUMENT", Poison, ValidationFailure),
    ("OUT_OF_RANGE", Poison, ValidationFailure),
    ("UNAUTHENTICATED", Poison, HandlerException),
    ("PERMISSION_DENIED", Poison, HandlerException),
    ("NOT_FOUND", Poison, HandlerException),
    ("ALREADY_EXISTS", Poison, HandlerException),
    ("UNIMPLEMENTED", Poison, HandlerException),
];

fn codes() -> Vec<Rule> {
    let rule = |(code, kind, reason): &(&str, Kind, Reason)| {
        Rule::new(*kind).name(format!("code {code}")).code(*code).set_reason(*reason)
    };
    CODES.iter().map(rule).collect()
}

/// The body or answer could not be read.
const UNREADABLE: &str = concat!(
    r"deserializ|unmarshal|\bserialization ?error|malformed|unexpected token",
    r"|unexpected end of (?:json|input|file|stream)",
    r"|(?:cannot|can't|could not|couldn't|failed to|unable to) (?:parse|decode)",
    r"|pars(?:e|ing) error|json ?decode|decod(?:e|ing) error|\bdecodeerror|invalid (?:json|utf-?8|xml|encoding)",
    r"|expected value at line|not valid (?:json|utf-?8|xml)",
);

/// The words of an error, from what says most to what says least. A number is taken for an HTTP
/// status only where it stands like one; see [`status_in_words`].
fn words() -> Vec<Rule> {
    let status = |numbers: &str| status_in_words(numbers);
    let table: &[(&str, String, Kind, Reason)] = &[
        ("words: time budget", TIME_BUDGET.to_owned(), Poison, TimeoutExceeded),
        ("words: HTTP 408, 502, 503, 504", status("408|502|503|504"), Transient, TransportUnavailable),
        ("words: HTTP 425, 429, 5xx", status("425|429|5[0-9][0-9]"), Transient, DependencyFailure),
        ("words: 5xx", r"(?:\b|_)5xx\b".to_owned(), Transient, DependencyFailure),
        ("words: HTTP 400, 413, 415, 422", status("400|413|415|422"), Poison, ValidationFailure),
        ("words: HTTP 4xx", status("4[0-9][0-9]"), Poison, HandlerException),
        ("words: 4xx", r"(?:\b|_)4xx\b".to_owned(), Poison, HandlerException),
        ("words: database busy", DATABASE_BUSY.to_owned(), Transient, DependencyFailure),
        ("words: network", NETWORK.to_owned(), Transient, TransportUnavailable),
        ("words: network time-out", TIMED_OUT.to_owned(), Transient, TransportUnavailable),
        ("words: unavailable", UNAVAILABLE.to_owned(), Transient, TransportUnavailable),
        ("words: overloaded", OVERLOADED.to_owned(), Transient, DependencyFailure),
        ("words: unreadable", UNREADABLE.to_owned(), Poison, SerializationError),
        ("words: refused", REFUSED.to_owned(), Poison, HandlerException),
        ("words: invalid", INVALID.to_owned(), Poison, ValidationFailure),
        ("words: time-out", r"time-?out".to_owned(), Transient, TransportUnavailable),
    ];
    let rule = |(name, regex, kind, reason): &(&str, String, Kind, Reason)| {
        Rule::new(*kind).name(*name).regex(regex).set_reason(*reason)
    };
    table.iter().map(rule).collect()
}

const TIME_BUDGET: &str = r"exceeded (?:its |the )?max(?:imum|\.)? duration|time budget";

const DATABASE_BUSY: &str = concat!(
    r"deadlock|\bserialization failure|could not serialize access",
    r#"|\b(?:sqlstate|code|error)[ :=(\["']*(?:40001|40p01)\b"#,
    r"|\b(?:database|table|schema)(?: table| schema)? is locked|sqlite_busy|lock wait time-?out",
    r"|could not obtain lock|write ?conflict|too many connections|remaining connection slots",
);

const NETWORK: &str = concat!(
    r"\be(?:connreset|connrefused|connaborted|pipe|timedout|sockettimedout|hostunreach|hostdown)\b",
    r"|\be(?:netunreach|netdown|netreset|notfound|ai_again)\b",
    r"|connection[ _-]?(?:was |is |has been |got )?(?:forcibly |unexpectedly )?",
    r"(?:reset|refused|closed|aborted|lost|dropped|terminated|error|failed|failure)",
    r"|(?:lost|closed|no) connection|(?:bad|invalid) connection(?:$|[.,:;\n])|gone away|broken ?pipe",
    r"|network[ _-]?(?:is )?(?:error|failure|unreachable|down|unavailable|connection|problem|issue)",
    r"|(?:host|destination) (?:is )?(?:unreachable|down|not found)|no route to host|no such host",
    r"|name resolution|name or service not known|nodename nor servname|getaddrinfo",
    r"|\bdns (?:error|lookup|failure)|socket hang up",
);

const TIMED_OUT: &str = concat!(
    r"timed[ -]?out|deadline exceeded|time-?out ?(?:error|exception)",
    r"|time-?out (?:after|waiting|while|when|reading|writing|connecting|expired|exceeded|elapsed|of|on|from)\b",
    r"|\b(?:connect|connection|read|write|request|response|network|socket|gateway|upstream|downstream",
    r"|operation|query|io|handshake|dial)[ _]?time-?out",
);

const UNAVAILABLE: &str = concat!(
    r"\bunavailable\b|serviceunavailable|temporarily|temporary (?:error|failure|problem)|bad gateway",
    r"|try again (?:later|in\b)|please (?:retry|try again)",
);

const OVERLOADED: &str = concat!(
    r"rate[ _-]?limit|too many requests|throttl|\boverload(?:ed)?\b|server (?:is )?(?:too )?busy",
    r"|internal server error",
);

const REFUSED: &str = concat!(
    r"\bunauthori[sz]ed|\bunauthenticated|\bforbidden|\bnot[ _]found\b|\bnotfound|\bconflict(?:s|ing|ed)?\b",
    r"|method not allowed|not acceptable",
);

const INVALID: &str = concat!(
    r"\binvalid|bad request|schema|unprocessable|unsupported media type|(?:payload|entity) too large",
    r"|validation[ _]?(?:error|failed|failure|exception)|validationerror|failed validation",
    r"|missing[ _](?:required[ _])?(?:field|property|parameter|key)|unknown[ _](?:message[ _])?type",
);

/// One of these numbers where it can only be an HTTP status: after a word for it ("HTTP/1.1 503",
/// "status code: 503"), or after a word for failing or at the very beginning, and then only if the
/// text goes on as it does after a status. "error 404: no such order" is one, "order 4000 failed",
/// "returned 400 rows" and "429 orders rejected" are none.
fn status_in_words(numbers: &str) -> String {
    let strong = r#"\b(?:http(?:/[0-9](?:\.[0-9])?)?|status(?:[ _-]?code)?|response[ _-]code)"#;
    let between =
        r#"["']?[ _:=(\["']*(?:(?:code|status|error|client|server|response|was|is|of)[ :=(\["']+)*"#;
    let weak = concat!(
        r"(?:^[ ]*|\b(?:error|exception|failed|failure|occurred|responded|replied|answered|returned|received|got",
        r"|upstream|downstream)(?: with| code| status| an?)*[ _:=(\[]+)",
    );
    let tail = concat!(
        r#"(?:[ ]*(?:$|[\r\n)\]}"';|!])|[.,:](?:[ \r\n]|$)|[ ]+-|[ ]+(?-i:[A-Z])"#,
        r"|[ ]+(?:from|for|on|by|at|in|when|while|error|response|status|returned|received|after|during)\b)",
    );
    format!(r"{strong}{between}(?:{numbers})\b|{weak}(?:{numbers})\b{tail}")
}
