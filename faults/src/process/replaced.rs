//! The file of a running store is replaced by an older copy of it: that is noticed, nothing is acknowledged any more, the
//! copy is refused, and with the right file put back everything that was acknowledged is there.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use sickbay_core::MessageId;
use sickbay_core::port::{Desk, Overview, Pusher};
use sickbay_core::{NewMessage, QueuePolicy};
use sickbay_store::SqliteStore;

use super::child::{options, queue};
use super::{Ended, folder, start};

/// So many pushes are acknowledged after the copy was made.
const PUSHES: usize = 200;

/// Puts an older copy in the place of the file of a running process.
pub fn replaced() -> Result<Ended> {
    let folder = folder()?;
    let path = folder.path().join("store.db");
    let copy = folder.path().join("older.db");
    crate::runtime().block_on(async {
        let store = SqliteStore::open(&path, options())?;
        store.define_queue(&queue()?, QueuePolicy::default()).await?;
        store.push(vec![NewMessage::new(queue()?, "before")]).await?;
        anyhow::Ok(())
    })?;
    std::fs::copy(&path, &copy)?;
    let (pushed, refusal) = push_and_replace(&path, &copy)?;
    if refusal.as_deref() != Some("SB0019") {
        return Ok(Ended::Badly(format!("a replaced file was answered with {refusal:?}")));
    }
    // The copy lies there now, beside the log and the mark of the file that it is not.
    let opened = SqliteStore::open(&path, options());
    match &opened {
        Err(error) if ["SB0012", "SB0016"].contains(&error.code()) => {}
        Err(error) => return Ok(Ended::Badly(format!("the older copy was refused with {error}"))),
        Ok(_) => return Ok(Ended::Badly("the older copy was taken for the store".to_owned())),
    }
    drop(opened);
    std::fs::rename(folder.path().join("kept.db"), &path)?;
    let store = SqliteStore::open(&path, options())?;
    crate::runtime().block_on(async {
        for number in pushed {
            let id = MessageId::from_number(number).context("a number that is none")?;
            if store.find(id.to_string().parse()?).await?.is_none() {
                return Ok(Ended::Badly(format!("message {number} was acknowledged and is gone")));
            }
        }
        Ok(Ended::Well)
    })
}

/// Has a child push, replaces its file, and waits until it says why it ends. What was acknowledged, and why.
fn push_and_replace(path: &Path, copy: &Path) -> Result<(HashSet<u64>, Option<String>)> {
    let mut child = start("child-pushing", path)?;
    let mut output = BufReader::new(child.stdout.take().context("no pipe")?).lines();
    let (mut pushed, mut refusal) = (HashSet::new(), None);
    for line in output.by_ref().map_while(Result::ok) {
        match line.parse() {
            Ok(number) => drop(pushed.insert(number)),
            Err(_) => refusal = Some(line),
        }
        if pushed.len() == PUSHES {
            // The file lives on under another name, as a copy of the right state would.
            std::fs::hard_link(path, path.with_file_name("kept.db"))?;
            std::fs::rename(copy, path)?;
        }
    }
    child.wait()?;
    Ok((pushed, refusal))
}

/// Pushes until that is refused, and says what was pushed and why it ended.
pub(super) async fn pushing(store: &Path) -> Result<()> {
    let store = SqliteStore::open(store, options())?;
    loop {
        match store.push(vec![NewMessage::new(queue()?, "x")]).await {
            Ok(pushed) => pushed.iter().for_each(|one| println!("{}", one.id().number())),
            Err(error) => {
                println!("{}", error.code());
                return Ok(());
            }
        }
    }
}
