//! A configuration that follows its file: a good new version is put in force, a broken one is reported
//! and the old one stays.
//!
//! The file is looked at a few times a second instead of having the system report events: the store
//! usually lies in the same folder, and each of its writes would be an event.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::{Config, ConfigErrors, Loaded};

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What a reload came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// A new version is in force.
    Changed,
    /// The file says what is in force already.
    Same,
    /// The file is broken; what was in force stays.
    Refused(ConfigErrors),
}

/// Keeps a configuration up to date until it is dropped.
pub struct ConfigWatcher {
    shared: Arc<Shared>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

type OnProblem = Box<dyn Fn(&ConfigErrors) + Send + Sync>;

struct Shared {
    path: PathBuf,
    in_force: watch::Sender<Arc<Config>>,
    on_problem: OnProblem,
    /// What was last read, and how the files looked just before. Held during a reload, so that two do
    /// not overtake each other.
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    stamps: Stamps,
}

/// How files look from outside.
type Stamps = BTreeMap<PathBuf, Option<Stamp>>;
type Stamp = (Option<SystemTime>, u64, u64);

impl ConfigWatcher {
    /// Follows the file of a configuration that was loaded. `on_problem` is called once for each broken
    /// version, from another thread.
    pub fn start(
        config: Config,
        on_problem: impl Fn(&ConfigErrors) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let path = config.path.clone();
        let (in_force, _) = watch::channel(Arc::new(config));
        // Without a stamp the first look reads the file, should it have changed since it was loaded.
        let seen = Seen { stamps: Stamps::from([(path.clone(), None)]) };
        let shared =
            Arc::new(Shared { path, in_force, on_problem: Box::new(on_problem), seen: Mutex::new(seen) });
        let (stop, stopped) = mpsc::channel();
        let watching = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("sickbay-config".to_owned())
            .spawn(move || watching.follow(&stopped))?;
        Ok(Self { shared, stop: Some(stop), thread: Some(thread) })
    }

    /// What is in force now.
    pub fn current(&self) -> Arc<Config> {
        self.shared.in_force.borrow().clone()
    }

    /// Tells of every new version.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Config>> {
        self.shared.in_force.subscribe()
    }

    /// Reads the file now, as SIGHUP asks for. A broken version is also reported to the callback.
    pub fn reload(&self) -> Reloaded {
        self.shared.reload()
    }
}

impl Drop for ConfigWatcher {
    fn drop(&mut self) {
        self.stop = None;
        // A thread that panicked has said so already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    /// Looks until it is told to stop.
    fn follow(&self, stopped: &Receiver<()>) {
        let mut last_look = Stamps::new();
        while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            let known = self.seen.lock().unwrap_or_else(PoisonError::into_inner).stamps.clone();
            let look = stamps(known.keys());
            // What still changes is being written: it is read when two looks agree.
            if look != known && look == last_look {
                self.reload();
            }
            last_look = look;
        }
    }

    fn reload(&self) -> Reloaded {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.in_force.borrow().clone();
        let mut look = stamps(seen.stamps.keys());
        let (files, reloaded) = match self.load(&before) {
            Ok(loaded) if loaded.config == *before => (loaded.files, Reloaded::Same),
            Ok(loaded) => {
                self.in_force.send_replace(Arc::new(loaded.config));
                (loaded.files, Reloaded::Changed)
            }
            Err(errors) => {
                (self.on_problem)(&errors);
                (errors.files.clone(), Reloaded::Refused(errors))
            }
        };
        // Files that were not watched yet are stamped after they were read; those that were, before.
        let new: Vec<PathBuf> = files.iter().filter(|file| !look.contains_key(*file)).cloned().collect();
        look.extend(stamps(new.iter()));
        look.retain(|file, _| files.contains(file));
        seen.stamps = look;
        reloaded
    }

    fn load(&self, before: &Config) -> Result<Loaded, ConfigErrors> {
        let loaded = Loaded::load(&self.path)?;
        if loaded.config.store == before.store {
            return Ok(loaded);
        }
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        let message = "the store cannot be changed while it is in use";
        let help = "stop and start again to use another store";
        Err(ConfigErrors::single(&self.path, &text, loaded.store_place, message, help))
    }
}

fn stamps<'f>(files: impl Iterator<Item = &'f PathBuf>) -> Stamps {
    files.map(|file| (file.clone(), stamp(file))).collect()
}

fn stamp(file: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok(), metadata.len(), inode(&metadata)))
}

#[cfg(unix)]
fn inode(metadata: &std::fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    metadata.ino()
}

#[cfg(not(unix))]
fn inode(_: &std::fs::Metadata) -> u64 {
    0
}
