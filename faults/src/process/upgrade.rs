//! An old and a new program on one file: two real processes, of which one knows one version of the schema more.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use sickbay_core::NewMessage;
use sickbay_core::port::{Desk, Overview, Pusher};
use sickbay_store::{SqliteOptions, SqliteStore};

use super::child::{options, queue};
use super::{Ended, folder, start};

/// What the new program adds to the schema.
const NEXT: &str = "CREATE TABLE added_later (one INTEGER PRIMARY KEY) STRICT;";
/// The word for the old program, which is this one as it is, and for the new one.
pub(super) const OLD: &str = "child-old";
pub(super) const NEW: &str = "child-new";

/// The old one runs and the new one starts; the old one stops and the new one takes over; the old one comes back; the
/// new one goes on.
pub fn upgrade() -> Result<Ended> {
    let folder = folder()?;
    let path = folder.path().join("store.db");
    Ok(go_through(&path)?.map_or(Ended::Well, Ended::Badly))
}

fn go_through(path: &Path) -> Result<Option<String>> {
    let mut old = Program::start(OLD, path)?;
    let said = old.says()?;
    if said != "1 there" {
        return Ok(Some(format!("the old one says {said}")));
    }
    let before = files(path)?;
    let refused = Program::start(NEW, path)?.says()?;
    if !refused.starts_with("SB0009") || files(path)? != before {
        return Ok(Some(format!("a new one beside an old one says {refused}, or changed something")));
    }
    old.stop()?;
    let mut new = Program::start(NEW, path)?;
    let said = new.says()?;
    new.stop()?;
    if said != "2 there" || !has_next(path)? {
        return Ok(Some(format!("the new one finds the file of the old one and says {said}")));
    }
    let before = files(path)?;
    let refused = Program::start(OLD, path)?.says()?;
    if !refused.starts_with("SB0008") || files(path)? != before {
        return Ok(Some(format!("an old one on a newer file says {refused}, or changed something")));
    }
    let mut new = Program::start(NEW, path)?;
    let said = new.says()?;
    new.stop()?;
    Ok((said != "3 there").then(|| format!("the new one goes on and says {said}")))
}

/// A running child.
struct Program {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Program {
    fn start(word: &str, path: &Path) -> Result<Self> {
        let mut child = start(word, path)?;
        let output = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Self { child, output })
    }

    fn says(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn stop(&mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "a child ended with {status}");
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended long ago.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What lies in the files of the store. Who owns it is not among it.
fn files(path: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    for name in ["", "-wal", "-sums", "-mark"] {
        let file = format!("{}{name}", path.display());
        let mut bytes = Vec::new();
        if let Ok(mut file) = std::fs::File::open(&file) {
            file.read_to_end(&mut bytes)?;
        }
        all.push((name.to_owned(), bytes));
    }
    Ok(all)
}

fn has_next(path: &Path) -> Result<bool> {
    let connection = rusqlite::Connection::open(path)?;
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'added_later'";
    Ok(connection.query_row(sql, [], |row| row.get::<_, i64>(0))? == 1)
}

/// Opens the store, pushes a message, says how many there are, and closes it when nobody listens any more.
pub(super) async fn program(word: &str, store: &Path) -> Result<()> {
    let options: SqliteOptions = if word == NEW { options().with_next_schema(NEXT) } else { options() };
    let store = match SqliteStore::open(store, options) {
        Ok(store) => store,
        Err(error) => {
            println!("{} {error}", error.code());
            return Ok(());
        }
    };
    store.define_queue(&queue()?, Default::default()).await?;
    store.push(vec![NewMessage::new(queue()?, word.to_owned())]).await?;
    println!("{} there", store.stats(&queue()?).await?.pending);
    std::io::stdout().flush()?;
    drop(std::io::stdin().lock().read_line(&mut String::new()));
    Ok(())
}
