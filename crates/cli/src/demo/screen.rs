//! What people see while the demo runs: a picture that is drawn over itself on a terminal, a few lines elsewhere.

use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sickbay::{Clock as _, SystemClock, Timestamp};

use super::picture::{Canvas, Run, draw};
use super::worker::Progress;
use crate::output::Output;

/// The screen; clones show the same.
#[derive(Clone)]
pub(super) struct Screen {
    silent: bool,
    canvas: Option<Canvas>,
    began: Timestamp,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    run: Run,
    /// So many lines of the last picture stand above the cursor.
    drawn: usize,
}

impl Screen {
    pub(super) fn new(out: &Output, total: u64) -> Self {
        let live = !out.json && !out.quiet && std::io::stderr().is_terminal();
        let size = terminal_size::terminal_size_of(std::io::stderr());
        let size = size.map_or((80, 24), |(width, height)| (usize::from(width.0), usize::from(height.0)));
        let (width, height) = if size.0 == 0 { (80, 24) } else { size };
        let canvas = live.then_some(Canvas { width, height, colour: out.colour_errors });
        let run = Run { total, ..Run::default() };
        let state = Arc::new(Mutex::new(State { run, drawn: 0 }));
        Self { silent: out.json || out.quiet, canvas, began: SystemClock::new().now(), state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn say(&self, line: &str) {
        if !self.silent {
            eprintln!("{line}");
        }
    }

    /// Draws what the worker process reports, until nobody reports any more.
    pub(super) fn follow(&self, progress: std::io::PipeReader) -> std::thread::JoinHandle<()> {
        let screen = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(progress).lines().map_while(Result::ok) {
                if let Ok(progress) = serde_json::from_str::<Progress>(&line) {
                    screen.progress(progress);
                }
            }
        })
    }

    fn progress(&self, progress: Progress) {
        let mut state = self.state();
        let Progress { completed, waiting, retrying, quarantined, duplicates, incidents } = progress;
        let run = &mut state.run;
        (run.completed, run.waiting, run.retrying) = (completed, waiting, retrying);
        (run.quarantined, run.duplicates, run.incidents) = (quarantined, duplicates, incidents);
        self.draw(&mut state);
    }

    /// The worker died, for so many times now.
    pub(super) fn died(&self, count: u64, death: &sickbay::Death) {
        let how = death.signal.map_or_else(
            || format!("exit code {}", death.exit_code.unwrap_or_default()),
            |signal| format!("signal {signal}"),
        );
        if self.canvas.is_none() {
            self.say(&format!("the worker died ({how}), for the {count}. time; started again"));
        }
        let mut state = self.state();
        (state.run.deaths, state.run.last_death) = (count, Some(how));
        self.draw(&mut state);
    }

    fn draw(&self, state: &mut State) {
        let Some(canvas) = self.canvas else { return };
        state.run.elapsed = SystemClock::new().now().since(self.began);
        let lines = draw(&state.run, canvas);
        let mut text = over(state.drawn);
        for line in &lines {
            text.push_str(line);
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        state.drawn = lines.len();
        write(&text);
    }

    /// Takes the picture away.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        if self.canvas.is_some() && state.drawn > 0 {
            write(&format!("{}\x1b[J", over(state.drawn)));
            state.drawn = 0;
        }
    }
}

/// Back to the first line of the last picture.
fn over(lines: usize) -> String {
    if lines == 0 { "\r".to_owned() } else { format!("\r\x1b[{lines}A") }
}

fn write(text: &str) {
    let mut err = std::io::stderr();
    // Nobody looks: nothing to be done about it.
    drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
}
