//! `schemas`: what the bodies of messages must look like, by message type.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use sickbay::MessageType;
use sickbay_worker::{InvalidSchema, SchemaValidator};

use super::nearest::nearest;
use super::problem::{Finding, Sort};
use super::read::Field;

/// A JSON Schema that was read and can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaFile {
    /// The file, in full.
    pub path: PathBuf,
    /// What stands in it.
    pub text: String,
}

impl SchemaFile {
    /// What checks messages of this type before they reach the handler.
    pub fn validator(&self, message_type: MessageType) -> Result<SchemaValidator, InvalidSchema> {
        SchemaValidator::new(message_type, &self.text)
    }
}

/// Reads the table `schemas`.
pub(super) fn read(field: &Field<'_>) -> BTreeMap<MessageType, SchemaFile> {
    field.entries().iter().filter_map(read_one).collect()
}

fn read_one(field: &Field<'_>) -> Option<(MessageType, SchemaFile)> {
    let message_type = MessageType::new(field.key());
    if let Err(error) = &message_type {
        field.wrong_key(error.to_string());
    }
    let written = field.text()?;
    let path = field.reader().path(written);
    field.reader().depends_on(&path);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            field.report(missing(field, written, &path, &error));
            return None;
        }
    };
    let (message_type, schema) = (message_type.ok()?, SchemaFile { path, text });
    if let Err(error) = schema.validator(message_type.clone()) {
        let help = format!("the file is {written}");
        field.report(Finding::new(field.span(), error.to_string()).help(help));
        return None;
    }
    Some((message_type, schema))
}

fn missing(field: &Field<'_>, written: &str, path: &Path, error: &io::Error) -> Finding {
    let finding = |message: String| Finding::new(field.span(), message).sort(Sort::Missing);
    if error.kind() != io::ErrorKind::NotFound {
        return finding(format!("the schema file cannot be read: {error}"));
    }
    let finding = finding(format!("there is no schema file `{written}`"));
    match neighbour(path) {
        Some(name) => finding.help(format!("did you mean `{name}`?")),
        None => finding.help("paths begin at the folder of the configuration file"),
    }
}

/// A file in the same folder whose name looks alike.
fn neighbour(path: &Path) -> Option<String> {
    let wanted = path.file_name()?.to_str()?;
    let folder = std::fs::read_dir(path.parent()?).ok()?;
    let mut names: Vec<String> =
        folder.take(1000).filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    nearest(wanted, names.iter().map(String::as_str)).map(str::to_owned)
}
