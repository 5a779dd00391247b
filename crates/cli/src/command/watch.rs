//! `--watch`: the same picture again and again.

use std::time::Duration;

use serde::Serialize;
use sickbay_server::wire::Span;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::Env;
use crate::output::{Exit, Failure, Output, Reader, Result};

/// Looking more often helps nobody.
const EVERY_MIN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, clap::Args)]
pub(crate) struct Watch {
    /// Look again every second, or every so often (--watch=5s), until Ctrl-C
    #[arg(
        long,
        value_name = "EVERY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        conflicts_with = "json"
    )]
    watch: Option<Span>,
}

impl Watch {
    /// Shows what `look` finds, once or again and again. Each time the store is reached anew, so that others
    /// can own it in between, and an owner that dies is only a moment without a picture.
    pub(crate) async fn show<T: Serialize>(
        self,
        env: &Env,
        look: impl AsyncFn() -> Result<T>,
        picture: impl Fn(&T, &Output) -> String,
    ) -> Result {
        let found = look().await?;
        let Some(Span(every)) = self.watch else {
            env.out.answer(&found, |out| picture(&found, out))?;
            return Ok(Exit::Done);
        };
        let mut frame = picture(&found, &env.out);
        // Listened to from here on, so that no Ctrl-C is missed while it is being looked.
        let mut told = signal(SignalKind::interrupt())
            .map_err(|error| Failure::new(Exit::Failed, format!("signals cannot be heard: {error}")))?;
        let mut looks = tokio::time::interval(every.max(EVERY_MIN));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looks.tick().await;
        loop {
            if env.out.print_to_reader(&drawn(&frame, &env.out))? == Reader::Gone {
                return Ok(Exit::Done);
            }
            tokio::select! {
                _ = looks.tick() => {}
                _ = told.recv() => return Ok(Exit::Done),
            }
            let looked = tokio::select! {
                looked = look() => looked,
                _ = told.recv() => return Ok(Exit::Done),
            };
            frame = match looked {
                Ok(found) => picture(&found, &env.out),
                Err(failure) if failure.exit == Exit::Unreachable => without(&failure),
                Err(failure) => return Err(failure),
            };
        }
    }
}

/// What is shown while there is nothing to be seen.
fn without(failure: &Failure) -> String {
    format!("{failure}; looking again\n")
}

/// On a terminal a frame takes the place of the last one; elsewhere an empty line parts them.
fn drawn(frame: &str, out: &Output) -> String {
    let Some(height) = out.height else { return format!("{frame}\n") };
    let mut text = String::from("\x1b[H");
    let lines: Vec<&str> = frame.lines().collect();
    let room = height.saturating_sub(1).max(2);
    let shown = if lines.len() > room { room - 1 } else { lines.len() };
    for line in &lines[..shown] {
        text.push_str(line);
        text.push_str("\x1b[K\n");
    }
    if shown < lines.len() {
        text.push_str(&format!("… and {} lines more\x1b[K\n", lines.len() - shown));
    }
    text.push_str("\x1b[J");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_takes_the_place_of_the_last_one_and_fits_the_terminal() {
        let piped = Output::plain(None);
        assert_eq!(drawn("a\nb\n", &piped), "a\nb\n\n");
        let terminal = Output { height: Some(4), ..Output::plain(Some(80)) };
        assert_eq!(drawn("a\nb\n", &terminal), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        let cut = drawn("a\nb\nc\nd\ne\n", &terminal);
        assert_eq!(cut, "\x1b[Ha\x1b[K\nb\x1b[K\n… and 3 lines more\x1b[K\n\x1b[J");
    }
}
