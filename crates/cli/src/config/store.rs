//! `[store]`: where messages are kept.

use std::path::PathBuf;

use super::handler::secret;
use super::postgres::PostgresAddress;
use super::problem::{Finding, Sort};
use super::read::{Field, Section, Span};
use super::shape;

/// What the store's file is called unless it is said.
const DEFAULT_PATH: &str = "sickbay.db";

/// Where messages are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// One SQLite file.
    Sqlite {
        /// The file, in full. It is made when it is not there.
        path: PathBuf,
    },
    /// A schema of a PostgreSQL database.
    Postgres {
        /// Where it is.
        address: PostgresAddress,
    },
}

/// Reads the store and says where it is named.
pub(super) fn read(document: &Section<'_>) -> (StoreConfig, Span) {
    let field = document.get("store");
    let place = field.as_ref().map_or(0..0, Field::span);
    let default = || StoreConfig::Sqlite { path: document.reader().path(DEFAULT_PATH) };
    if let Some(field) = field.as_ref().filter(|field| field.value().is_str()) {
        return (read_short(field).unwrap_or_else(default), place);
    }
    let Some(section) = field.and_then(|field| field.section(&shape::STORE)) else {
        return (default(), place);
    };
    let (path, url) = (section.get("path"), section.get("url"));
    if let (Some(path), Some(url)) = (&path, &url) {
        let finding = Finding::new(url.key_span(), "a store has a `path` or a `url`, not both");
        section.report(finding.related(path.key_span(), "the path is given here"));
    }
    if let Some(url) = &url {
        return (read_url(url).unwrap_or_else(default), url.span());
    }
    let place = path.as_ref().map_or(place, Field::span);
    let path = path.and_then(|path| read_path(&path));
    (path.map_or_else(default, |path| StoreConfig::Sqlite { path }), place)
}

/// `store = "…"`: a database, or a file.
fn read_short(field: &Field<'_>) -> Option<StoreConfig> {
    let written = field.text()?;
    if written.contains("://") || written.starts_with("env:") {
        return read_url(field);
    }
    read_path(field).map(|path| StoreConfig::Sqlite { path })
}

/// The address of a database, or with `env:` before it the variable that holds it.
fn read_url(field: &Field<'_>) -> Option<StoreConfig> {
    let secret = secret(field)?;
    if !PostgresAddress::is_one(secret.reveal()) {
        let finding = Finding::new(field.span(), "`url` must begin with postgres://");
        field.report(finding.help("a SQLite file is named by `path`"));
        return None;
    }
    match PostgresAddress::from_secret(&secret) {
        Ok(address) => Some(StoreConfig::Postgres { address }),
        Err(why) => {
            field.wrong(why);
            None
        }
    }
}

fn read_path(field: &Field<'_>) -> Option<PathBuf> {
    let written = field.text()?;
    if written.is_empty() {
        field.wrong("`path` is empty");
        return None;
    }
    if written.contains("://") {
        field.report(Finding::new(field.span(), "`path` must be a file").help("a server is named by `url`"));
        return None;
    }
    let path = field.reader().path(written);
    let folder = path.parent().filter(|folder| !folder.is_dir());
    if folder.is_some() {
        let finding =
            Finding::new(field.span(), "the folder of this file does not exist").sort(Sort::Missing);
        field.report(finding.help("make the folder first; only the file itself is made by itself"));
        return None;
    }
    if path.is_dir() {
        field.wrong("`path` must be a file, but this is a folder");
        return None;
    }
    Some(path)
}
