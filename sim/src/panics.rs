//! Panics of a run: they become findings, and are not printed by each of a thousand shorter scripts.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// A run is under way on this thread.
    static RUNS: Cell<bool> = const { Cell::new(false) };
    /// What the first panic of the run said, and where.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOKED: Once = Once::new();

/// Carries something out. An error is what it said when it panicked.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    HOOKED.call_once(hook);
    RUNS.set(true);
    SAID.take();
    let ran = catch_unwind(AssertUnwindSafe(run));
    RUNS.set(false);
    // One that began on another thread has been printed there; its words may have come along.
    ran.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        said().or(text).unwrap_or_else(|| "a panic without words".to_owned())
    })
}

/// What a panic of this run said, also one that somebody else has caught: a task of a worker ends with it, and its
/// runtime goes on.
pub(crate) fn said() -> Option<String> {
    SAID.take()
}

fn hook() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if RUNS.get() {
            SAID.with_borrow_mut(|said| *said = said.take().or_else(|| Some(panic.to_string())));
        } else {
            before(panic);
        }
    }));
}
