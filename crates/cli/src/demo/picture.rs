//! The picture of the run: what became of the orders so far, and the incidents found.

use std::time::Duration;

use super::incidents::Incident;
use crate::output::{count, escape, excerpt};

const GREEN: &str = "32";
const BLUE: &str = "34";
const YELLOW: &str = "33";
const RED: &str = "31";
const BOLD: &str = "1";
const DIM: &str = "2";

/// Where it is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Canvas {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) colour: bool,
}

/// What is known of the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub(super) total: u64,
    pub(super) completed: u64,
    pub(super) waiting: u64,
    pub(super) retrying: u64,
    pub(super) quarantined: u64,
    pub(super) duplicates: u64,
    pub(super) incidents: Vec<Incident>,
    pub(super) deaths: u64,
    pub(super) last_death: Option<String>,
    pub(super) elapsed: Duration,
}

impl Canvas {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The lines of the picture, none wider and no more than the canvas has.
pub(super) fn draw(run: &Run, canvas: Canvas) -> Vec<String> {
    let mut lines = vec![progress(run, canvas), String::new()];
    let outcomes = [
        ("paid", run.completed, GREEN),
        ("waiting", run.waiting, BLUE),
        ("to be retried", run.retrying, YELLOW),
        ("quarantined", run.quarantined, RED),
    ];
    lines.extend(outcomes.map(|(name, number, colour)| outcome(run, canvas, name, number, colour)));
    lines.push(deaths(run, canvas));
    if !run.incidents.is_empty() {
        lines.push(String::new());
        let title = format!("  {} incidents found", run.incidents.len());
        lines.push(canvas.paint(BOLD, &title));
        let room = canvas.height.saturating_sub(lines.len() + 1);
        lines.extend(run.incidents.iter().take(room).map(|found| incident(found, canvas)));
    }
    lines.truncate(canvas.height.saturating_sub(1));
    lines
}

fn progress(run: &Run, canvas: Canvas) -> String {
    let settled = (run.completed + run.quarantined + run.duplicates).min(run.total);
    let share = settled * 100 / run.total.max(1);
    let seconds = run.elapsed.as_secs_f64();
    let words = format!("  {share:>3} %  {} of {}  {seconds:.1} s", count(settled), count(run.total));
    let width = canvas.width.saturating_sub(words.chars().count() + 3).min(60);
    let full = width * share as usize / 100;
    let bar =
        format!("{}{}", canvas.paint(GREEN, &"█".repeat(full)), canvas.paint(DIM, &"░".repeat(width - full)));
    format!("  {bar}{words}")
}

fn outcome(run: &Run, canvas: Canvas, name: &str, number: u64, colour: &str) -> String {
    let width = canvas.width.saturating_sub(30).min(50) as u64;
    let mut length = number * width / run.total.max(1);
    if number > 0 {
        length = length.max(1);
    }
    let bar = canvas.paint(colour, &"■".repeat(length.min(width) as usize));
    format!("  {name:<13} {:>11}  {bar}", count(number))
}

fn deaths(run: &Run, canvas: Canvas) -> String {
    let Some(last) = &run.last_death else { return String::new() };
    let words = format!("  the worker died {} times, last by {last}, and was started again", run.deaths);
    canvas.paint(YELLOW, &excerpt(&words, canvas.width.saturating_sub(1)))
}

fn incident(found: &Incident, canvas: Canvas) -> String {
    let start = format!("  {:>7}  ", count(found.count));
    let reason = format!("{:<18}", found.reason);
    let used = start.chars().count() + reason.chars().count() + 2;
    let sample = excerpt(&escape(&found.sample), canvas.width.saturating_sub(used + 1));
    format!("{}{reason}  {}", canvas.paint(RED, &start), canvas.paint(DIM, &sample))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        let incident = |count, reason: &str, sample: &str| Incident {
            signature: "c5t2zr4sk00pm".to_owned(),
            reason: reason.to_owned(),
            count,
            sample: sample.to_owned(),
        };
        Run {
            total: 10_000,
            completed: 6_982,
            waiting: 2_802,
            retrying: 104,
            quarantined: 112,
            duplicates: 200,
            incidents: vec![
                incident(72, "ValidationFailure", "userId is missing"),
                incident(
                    38,
                    "HandlerException",
                    "no handler for messages of type OrderMelted, whatever that may be",
                ),
                incident(2, "TimeoutExceeded", "evil \u{1b}[2J sample"),
            ],
            deaths: 2,
            last_death: Some("signal 6".to_owned()),
            elapsed: Duration::from_millis(1234),
        }
    }

    #[test]
    fn the_picture_fits_80_columns() {
        let canvas = Canvas { width: 80, height: 24, colour: false };
        let expected = [
            "  █████████████████████████████████░░░░░░░░░░░░░   72 %  7,294 of 10,000  1.2 s",
            "",
            "  paid                6,982  ■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■",
            "  waiting             2,802  ■■■■■■■■■■■■■■",
            "  to be retried         104  ■",
            "  quarantined           112  ■",
            "  the worker died 2 times, last by signal 6, and was started again",
            "",
            "  3 incidents found",
            "       72  ValidationFailure   userId is missing",
            "       38  HandlerException    no handler for messages of type OrderMelted, wh…",
            "        2  TimeoutExceeded     evil \\u{1b}[2J sample",
        ];
        assert_eq!(draw(&run(), canvas), expected);
    }

    #[test]
    fn no_line_is_wider_and_the_picture_not_higher_than_the_terminal() {
        for (width, height) in [(120, 40), (80, 24), (60, 10), (40, 6), (40, 3)] {
            let lines = draw(&run(), Canvas { width, height, colour: false });
            assert!(lines.len() < height.max(2), "{height}: {lines:?}");
            for line in lines {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn colours_change_nothing_but_the_colour() {
        let canvas = Canvas { width: 100, height: 30, colour: true };
        let colourful = draw(&run(), canvas).join("\n");
        assert!(colourful.contains("\x1b[31m"));
        let plain = draw(&run(), Canvas { colour: false, ..canvas }).join("\n");
        let stripped = ["1", "2", "31", "32", "33", "34", "0"]
            .iter()
            .fold(colourful, |text, code| text.replace(&format!("\x1b[{code}m"), ""));
        assert_eq!(stripped, plain);
    }
}
