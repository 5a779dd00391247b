//! The configuration file `sickbay.toml` (D1): which store, which queues, what they want, who handles
//! their messages. `docs/configuration.md` describes every key.
//!
//! [`Config::load`] reads a file and either answers with everything in it, checked, or with
//! [`ConfigErrors`]: *all* that is wrong, each with its place. Whoever runs for long keeps a
//! [`ConfigWatcher`], which puts a good new version in force and reports a broken one.
//!
//! Read it in this order: `problem` (what is said), `read` (how tables and values are taken apart),
//! `queue` with `retry`, `rules`, `handler` and `schema` (what each block means), `watch`.

mod duration;
mod handler;
pub mod init;
mod nearest;
mod postgres;
mod print;
mod problem;
mod queue;
mod read;
mod relay;
mod render;
mod retry;
mod rules;
mod schema;
mod shape;
mod store;
mod syntax;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sickbay::{MessageType, QueueName, QueuePolicy};

pub use duration::{parse_duration, show_duration};
pub use handler::{HandlerConfig, Header, Pool, Secret};
pub use postgres::PostgresAddress;
pub use problem::{ConfigErrors, Place, Problem, Related, Sort};
pub use queue::{QueueSource, WorkerSettings};
pub use render::Paint;
pub use schema::SchemaFile;
pub use shape::{SHAPES, Shape};
pub use store::StoreConfig;
pub use watch::{ConfigWatcher, Reloaded};

use problem::Finding;
use queue::Settings;
use read::{Field, Reader, Section};

/// The name of the file that commands look for when they are not told another.
pub const FILE_NAME: &str = "sickbay.toml";

/// A configuration without errors.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file, as it was named.
    pub path: PathBuf,
    /// Where messages are kept.
    pub store: StoreConfig,
    /// What each queue wants.
    pub queues: BTreeMap<QueueName, QueueConfig>,
}

/// What one queue wants.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueConfig {
    /// What decides about its messages.
    pub policy: QueuePolicy,
    /// How a worker serves it.
    pub worker: WorkerSettings,
    /// How long discarded messages are kept before they are removed for good. Defaults to for ever.
    pub retention: Option<Duration>,
    /// Where its messages come from. Defaults to our own store.
    pub source: QueueSource,
    /// What the bodies of its messages must look like, by message type.
    pub schemas: BTreeMap<MessageType, SchemaFile>,
    /// What handles its messages. Without one, only programs that embed the library can.
    pub handler: Option<HandlerConfig>,
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        let path = path.as_ref();
        let text = read_text(path)?;
        Self::parse(path, &text, |name| std::env::var(name).ok())
    }

    /// Checks a text as if it stood in the file `path`: what it names relatively is looked for beside
    /// that file. `variable` answers for the environment.
    pub fn parse(
        path: &Path,
        text: &str,
        variable: fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigErrors> {
        Loaded::parse(path, text, variable).map(|loaded| loaded.config)
    }

    /// The same configuration as a file, with every setting and every path in full. Values from the
    /// environment are named, not shown.
    pub fn to_toml(&self) -> String {
        print::to_toml(self)
    }

    /// The folder that relative names in the file begin at.
    pub fn folder(&self) -> PathBuf {
        folder_of(&self.path)
    }
}

/// A configuration and what a reload needs to know about it.
struct Loaded {
    config: Config,
    /// Where the store is named, for a reload that may not change it.
    store_place: Place,
    /// The files that were read.
    files: Vec<PathBuf>,
}

impl Loaded {
    fn load(path: &Path) -> Result<Self, ConfigErrors> {
        let text = read_text(path)?;
        Self::parse(path, &text, |name| std::env::var(name).ok())
    }

    fn parse(path: &Path, text: &str, variable: fn(&str) -> Option<String>) -> Result<Self, ConfigErrors> {
        let reader = Reader::new(folder_of(path), text, variable);
        let table = syntax::parse(&reader);
        let config = table.as_ref().map(|table| read_document(&reader, path, table));
        let (findings, mut files) = reader.finish();
        files.push(path.to_owned());
        match config {
            Some((config, store_place)) if findings.is_empty() => {
                Ok(Self { config, store_place: Place::of(text, store_place), files })
            }
            _ => Err(ConfigErrors::new(path, text, findings, files)),
        }
    }
}

fn read_text(path: &Path) -> Result<String, ConfigErrors> {
    let bytes = std::fs::read(path).map_err(|error| ConfigErrors::unreadable(path, &error))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        // What precedes the bad byte is the same in the repaired text, so the place is right.
        let repaired = String::from_utf8_lossy(error.as_bytes()).into_owned();
        let finding = Finding::new(at..at + 1, "the file is not UTF-8 from here on").sort(Sort::Syntax);
        ConfigErrors::new(path, &repaired, vec![finding], vec![path.to_owned()])
    })
}

fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

fn read_document(reader: &Reader<'_>, path: &Path, table: &read::Table<'_>) -> (Config, read::Span) {
    let document = Section::document(reader, table, &shape::DOCUMENT);
    let (store, store_place) = store::read(&document);
    let defaults = document.get("defaults").and_then(|field| field.section(&shape::DEFAULTS));
    let defaults = defaults.map(|section| Settings::read(&section)).unwrap_or_default();
    let mut queues = BTreeMap::new();
    for field in document.get("queues").map(|field| field.entries()).unwrap_or_default() {
        if let Some((name, queue)) = read_queue(&field, &defaults) {
            queues.insert(name, queue);
        }
    }
    (Config { path: path.to_owned(), store, queues }, store_place)
}

fn read_queue(field: &Field<'_>, defaults: &Settings) -> Option<(QueueName, QueueConfig)> {
    let name = QueueName::new(field.key());
    if let Err(error) = &name {
        field.wrong_key(error.to_string());
    }
    let section = field.section(&shape::QUEUE)?;
    let queue = Settings::read(&section).over(defaults).finish(field);
    Some((name.ok()?, queue))
}
