//! `handler`: what handles a queue's messages without Rust (D2).

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use toml::de::DeValue;

use super::problem::{Finding, Sort};
use super::read::{Field, Section};
use super::shape;

/// The most programs a pool may have.
const POOL_SIZE_MAX: u32 = 1024;
/// The most headers a request may be given.
const HEADERS_MAX: usize = 100;
/// Headers that belong to the connection and not to the request's meaning.
const OWN_HEADERS: &[&str] =
    &["connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"];

/// What handles a queue's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerConfig {
    /// A program: one process for each message, or a pool of long-lived ones.
    Exec {
        /// The program, in full.
        program: PathBuf,
        /// What it is called with.
        arguments: Vec<String>,
        /// Long-lived programs that speak NDJSON. Defaults to a process for each message.
        pool: Option<Pool>,
    },
    /// An HTTP endpoint.
    Http {
        /// Where messages are posted to.
        url: String,
        /// How long an answer may take. Defaults to the queue's time budget.
        timeout: Option<Duration>,
        /// What is sent with each message, in the order of the names.
        headers: Vec<Header>,
    },
    /// An outbox: each message is handed on, to an event store first if there is one.
    Relay {
        /// Where messages are published.
        publish: String,
        /// Where they are stored as events before. Defaults to nowhere.
        event_store: Option<String>,
        /// How long each answer may take. Defaults to the queue's time budget.
        timeout: Option<Duration>,
        /// What is sent with each message, in the order of the names.
        headers: Vec<Header>,
    },
}

/// A pool of long-lived programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// How many programs. Defaults to the queue's concurrency.
    pub size: Option<u32>,
}

/// A header of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name, in lower case.
    pub name: String,
    /// Its value.
    pub value: Secret,
}

/// A text that is not shown by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    variable: Option<String>,
}

impl Secret {
    /// A text as it was written.
    pub(super) fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), variable: None }
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// The variable of the environment that it came from.
    pub fn variable(&self) -> Option<&str> {
        self.variable.as_deref()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.variable {
            Some(variable) => write!(f, "env:{variable}"),
            None => f.write_str("(hidden)"),
        }
    }
}

/// Reads a handler block.
pub(super) fn read(field: &Field<'_>) -> Option<HandlerConfig> {
    let section = field.section(&shape::HANDLER)?;
    match (section.get("exec"), section.get("http")) {
        (Some(exec), Some(http)) => {
            let finding = Finding::new(http.key_span(), "a handler has `exec` or `http`, not both");
            section.report(finding.related(exec.key_span(), "`exec` is given here"));
            None
        }
        (None, None) => {
            let finding = Finding::new(section.span(), "a handler needs `exec` or `http`").sort(Sort::Clash);
            section.report(finding.help("for example `exec = [\"./pay.sh\"]`"));
            None
        }
        (Some(exec), None) => {
            refuse(&section, "timeout", "a program is stopped at the queue's `time_budget`");
            refuse(&section, "headers", "a program finds what it needs in its environment");
            read_exec(&section, &exec)
        }
        (None, Some(http)) => {
            refuse(&section, "pool", "connections to an endpoint are kept and shared anyway");
            read_http(&section, &http)
        }
    }
}

fn refuse(section: &Section<'_>, key: &'static str, why: &str) {
    if let Some(field) = section.get(key) {
        let other = if section.get("exec").is_some() { "http" } else { "exec" };
        let message = format!("`{key}` belongs to a handler with `{other}`");
        section.report(Finding::new(field.key_span(), message).sort(Sort::Clash).help(why));
    }
}

fn read_exec(section: &Section<'_>, field: &Field<'_>) -> Option<HandlerConfig> {
    let pool = section.get("pool").map(|field| read_pool(&field));
    if let DeValue::String(line) = field.value() {
        let words: Vec<String> = line.split_whitespace().map(|word| format!("{word:?}")).collect();
        let finding = field.expected("a list of the program and its arguments");
        field.report(finding.help(format!("write `exec = [{}]`", words.join(", "))));
        return None;
    }
    let items = field.items("a list of the program and its arguments")?;
    let Some((first, rest)) = items.split_first() else {
        let finding = Finding::new(field.span(), "`exec` is empty");
        field.report(finding.help("its first word is the program: `exec = [\"./pay.sh\"]`"));
        return None;
    };
    let program = find_program(first);
    let arguments: Vec<Option<String>> = rest.iter().map(argument).collect();
    let arguments = arguments.into_iter().collect::<Option<Vec<_>>>();
    Some(HandlerConfig::Exec { program: program?, arguments: arguments?, pool: pool.unwrap_or(Some(None))? })
}

fn argument(field: &Field<'_>) -> Option<String> {
    let text = field.text()?;
    if text.contains('\0') {
        field.wrong("an argument cannot contain a NUL character");
        return None;
    }
    Some(text.to_owned())
}

/// `None` if it is wrong, `Some(None)` for no pool.
fn read_pool(field: &Field<'_>) -> Option<Option<Pool>> {
    match field.value() {
        DeValue::Boolean(wanted) => Some(wanted.then_some(Pool { size: None })),
        DeValue::Table(_) => {
            let section = field.section(&shape::POOL)?;
            let size = section.get("size").map(|field| field.count(1..=POOL_SIZE_MAX));
            Some(Some(Pool { size: size.map_or(Some(None), |size| size.map(Some))? }))
        }
        _ => {
            field.report(field.expected("true, false or a table").help("write `pool = { size = 4 }`"));
            None
        }
    }
}

/// A program with a folder in its name is looked for from the configuration's folder on, another one
/// where the shell would look.
fn find_program(field: &Field<'_>) -> Option<PathBuf> {
    let word = argument(field)?;
    if word.is_empty() {
        field.wrong("the name of the program is empty");
        return None;
    }
    let reader = field.reader();
    if Path::new(&word).components().count() > 1 || word.contains('/') {
        let path = reader.path(&word);
        return match look(&path) {
            Found::Program => Some(path),
            Found::NotExecutable => {
                let finding =
                    Finding::new(field.span(), format!("`{word}` is not executable")).sort(Sort::Missing);
                field.report(finding.help(format!("chmod +x {word}")));
                reader.depends_on(&path);
                None
            }
            Found::Nothing => {
                let finding =
                    Finding::new(field.span(), format!("there is no program `{word}`")).sort(Sort::Missing);
                field.report(finding.help("paths begin at the folder of the configuration file"));
                reader.depends_on(&path);
                None
            }
        };
    }
    let folders = reader.variable("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&folders).map(|folder| folder.join(&word));
    let found = candidates.find(|path| matches!(look(path), Found::Program));
    if found.is_none() {
        let finding =
            Finding::new(field.span(), format!("no program `{word}` is in the PATH")).sort(Sort::Missing);
        let beside = matches!(look(&reader.path(&word)), Found::Program | Found::NotExecutable);
        let help = beside.then(|| format!("a program beside the configuration file is written \"./{word}\""));
        field.report(finding.maybe_help(help));
    }
    found
}

enum Found {
    Program,
    NotExecutable,
    Nothing,
}

fn look(path: &Path) -> Found {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && is_executable(&metadata) => Found::Program,
        Ok(metadata) if metadata.is_file() => Found::NotExecutable,
        _ => Found::Nothing,
    }
}

#[cfg(unix)]
fn is_executable(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &std::fs::Metadata) -> bool {
    true
}

fn read_http(section: &Section<'_>, field: &Field<'_>) -> Option<HandlerConfig> {
    let timeout = section.get("timeout").map(|field| field.duration(Duration::from_millis(1)));
    let headers = section.get("headers").map(|field| read_headers(&field));
    let url = field.text()?;
    if let Some(finding) = check_url(field, url) {
        field.report(finding);
        return None;
    }
    let timeout = timeout.map_or(Some(None), |timeout| timeout.map(Some))?;
    Some(HandlerConfig::Http { url: url.to_owned(), timeout, headers: headers.unwrap_or(Some(Vec::new()))? })
}

pub(super) fn check_url(field: &Field<'_>, url: &str) -> Option<Finding> {
    let key = field.key();
    let wrong = |message: String| Some(Finding::new(field.span(), message));
    if !url.contains("://") {
        let finding = Finding::new(field.span(), format!("`{key}` must be a URL with http:// or https://"));
        return Some(finding.help(format!("write \"http://{}\"", url.trim_start_matches('/'))));
    }
    let uri: Uri = match url.parse() {
        Ok(uri) => uri,
        Err(error) => return wrong(format!("`{key}` is no URL: {error}")),
    };
    match uri.scheme_str() {
        Some("http" | "https") => {}
        other => {
            let other = other.unwrap_or_default();
            return wrong(format!("`{key}` must begin with http:// or https://, not {other}://"));
        }
    }
    if uri.host().is_none_or(str::is_empty) {
        return wrong(format!("`{key}` names no host"));
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        let finding = Finding::new(field.span(), "a URL with a password in it ends up in logs");
        return Some(finding.help("write `headers = { Authorization = \"env:NAME\" }`"));
    }
    let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
    match port {
        Some(port) if !port.parse::<u16>().is_ok_and(|port| port > 0) => {
            wrong("the port must be between 1 and 65535".to_owned())
        }
        _ => None,
    }
}

pub(super) fn read_headers(field: &Field<'_>) -> Option<Vec<Header>> {
    let entries = field.value().is_table().then(|| field.entries());
    let Some(entries) = entries else {
        let finding = field.expected("a table");
        field.report(finding.help("write `headers = { X-Api-Key = \"env:PAY_KEY\" }`"));
        return None;
    };
    if entries.len() > HEADERS_MAX {
        field.wrong(format!("there are {} headers; at most {HEADERS_MAX} are allowed", entries.len()));
        return None;
    }
    let read: Vec<Option<Header>> = entries.iter().map(read_header).collect();
    let mut headers = read.into_iter().collect::<Option<Vec<_>>>()?;
    headers.sort_by(|a, b| a.name.cmp(&b.name));
    if headers.windows(2).any(|pair| pair[0].name == pair[1].name) {
        field.wrong("two headers differ only in upper and lower case");
        return None;
    }
    Some(headers)
}

fn read_header(field: &Field<'_>) -> Option<Header> {
    let name = HeaderName::from_bytes(field.key().as_bytes());
    match &name {
        Err(_) => field.wrong_key(format!("`{}` cannot be the name of a header", field.key())),
        Ok(name) if OWN_HEADERS.contains(&name.as_str()) => {
            field.wrong_key(format!("`{}` is set by the connection itself", field.key()));
            return None;
        }
        Ok(_) => {}
    }
    let value = secret(field)?;
    if HeaderValue::from_str(value.reveal()).is_err() {
        field.wrong("the value of a header cannot contain line breaks or control characters");
        return None;
    }
    Some(Header { name: name.ok()?.as_str().to_owned(), value })
}

/// A text, or with `env:` before it the name of the variable that holds it.
pub(super) fn secret(field: &Field<'_>) -> Option<Secret> {
    let text = field.text()?;
    let Some(variable) = text.strip_prefix("env:") else {
        return Some(Secret::plain(text));
    };
    if variable.is_empty() || variable.contains(['=', '\0']) {
        field.report(
            Finding::new(field.span(), "`env:` needs the name of a variable").help("write \"env:PAY_KEY\""),
        );
        return None;
    }
    let Some(value) = field.reader().variable(variable) else {
        let message = format!("the environment variable `{variable}` is not set");
        field.report(
            Finding::new(field.span(), message)
                .sort(Sort::Missing)
                .help(format!("export {variable}=… before you start")),
        );
        return None;
    };
    Some(Secret { text: value, variable: Some(variable.to_owned()) })
}
