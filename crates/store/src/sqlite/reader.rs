//! Readers: connections of their own that never block the writer.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use rusqlite::Connection;
use sickbay_core::StoreError;

use super::failure::Translate;
use super::file::connect_reader;
use super::sync::{Mutex, oneshot, thread};

/// How many idle connections are kept.
const IDLE_MAX: usize = 4;

/// Idle read-only connections.
pub(super) struct Readers {
    path: PathBuf,
    vfs: Option<String>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, vfs: Option<String>) -> Self {
        Self { path, vfs, idle: Arc::default() }
    }

    /// Reads from one consistent state of the store, on a thread of its own.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (path, vfs, idle) = (self.path.clone(), self.vfs.clone(), self.idle.clone());
        let (answer, answered) = oneshot::channel();
        let work = move || {
            let known = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let result = match known.map_or_else(|| connect_reader(&path, vfs.as_deref()), Ok) {
                Ok(connection) => {
                    let result = snapshot(&connection, read);
                    let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
                    if idle.len() < IDLE_MAX {
                        idle.push(connection);
                    }
                    result
                }
                Err(error) => Err(error),
            };
            drop(answer.send(result));
        };
        let thread = thread::Builder::new().name("sickbay-reader".to_owned());
        thread.spawn(work).map_err(|error| super::failure::io(&self.path, &error))?;
        answered.await.map_err(|_| crate::door::closed())?
    }

    /// Lets go of the file.
    pub(super) fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn snapshot<T>(
    connection: &Connection,
    read: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.execute_batch("BEGIN").translated()?;
    let result = read(connection);
    // What was read is good, and what failed is more than that nothing is left to end.
    let ended = connection.execute_batch("ROLLBACK").translated();
    result.and_then(|read| ended.map(|()| read))
}
