//! The supervisor with real child processes, by the manual clock.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use sickbay_testkit::ManualClock;
use sickbay_worker::{Death, LAST_DEATH, Supervised, Supervisor};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

struct Watched {
    clock: ManualClock,
    deaths: UnboundedReceiver<Death>,
    stop: Option<oneshot::Sender<()>>,
    ended: JoinHandle<std::io::Result<Supervised>>,
}

impl Watched {
    /// Each child runs the next script; the last one is repeated.
    fn start(scripts: &'static [&'static str]) -> Self {
        let clock = ManualClock::new();
        let (tell, deaths) = unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let mut next = 0;
        let command = move || {
            next += 1;
            shell(scripts[(next - 1).min(scripts.len() - 1)])
        };
        let supervisor = Supervisor::new(command, Arc::new(clock.clone()))
            .kill_after(Duration::from_secs(5))
            .on_death(move |death| drop(tell.send(death.clone())));
        let ended = tokio::spawn(supervisor.run_until(async { drop(stopped.await) }));
        Self { clock, deaths, stop: Some(stop), ended }
    }

    async fn death(&mut self) -> Death {
        self.deaths.recv().await.expect("a death")
    }

    /// Moves the clock until the supervisor has gone on: it may not be waiting yet.
    async fn next_after(&mut self, backoff: Duration) -> Death {
        loop {
            self.clock.advance(backoff);
            tokio::select! {
                biased;
                death = self.deaths.recv() => return death.expect("a death"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
}

#[tokio::test]
async fn a_child_that_ends_well_ends_the_supervisor() {
    let watched = Watched::start(&["exit 0"]);
    assert_eq!(watched.ended.await.unwrap().unwrap(), Supervised::Finished);
}

#[tokio::test]
async fn a_death_is_reported_and_told_to_the_next_child() {
    let mut watched = Watched::start(&[
        "echo it hurts >&2; kill -9 $$",
        "echo \"heard: $SICKBAY_LAST_DEATH\" >&2; exit 3",
        "exit 0",
    ]);
    let first = watched.death().await;
    assert_eq!((first.signal, first.exit_code), (Some(9), None));
    assert_eq!(first.stderr_tail, "it hurts\n");
    let second = watched.next_after(Duration::from_millis(100)).await;
    assert_eq!((second.signal, second.exit_code), (None, Some(3)));
    assert!(second.stderr_tail.starts_with("heard: signal 9 (pid "), "{}", second.stderr_tail);
    assert!(second.stderr_tail.contains("it hurts"), "{}", second.stderr_tail);
    let ended = loop {
        watched.clock.advance(Duration::from_millis(200));
        if watched.ended.is_finished() {
            break watched.ended.await;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(ended.unwrap().unwrap(), Supervised::Finished);
    assert_eq!(LAST_DEATH, "SICKBAY_LAST_DEATH");
}

#[tokio::test]
async fn a_child_is_not_started_again_before_its_time() {
    let mut watched = Watched::start(&["exit 1"]);
    watched.death().await;
    for backoff_ms in [100, 200, 400] {
        // Waiting is over only when the clock says so, however often the runtime turns.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(watched.deaths.is_empty());
        watched.clock.advance(Duration::from_millis(backoff_ms - 1));
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(watched.deaths.is_empty(), "one millisecond is missing");
        watched.clock.advance(Duration::from_millis(1));
        watched.death().await;
    }
}

#[tokio::test]
async fn stopping_passes_the_signal_on_and_waits_for_the_child() {
    let mut watched =
        Watched::start(&["trap 'echo bye >&2; exit 7' TERM; while :; do read -r line || sleep 0.01; done"]);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    drop(watched.stop.take());
    assert_eq!(watched.ended.await.unwrap().unwrap(), Supervised::Stopped);
    assert!(watched.deaths.recv().await.is_none(), "a stop is no death");
}

#[tokio::test]
async fn a_child_that_will_not_stop_is_killed() {
    let mut watched = Watched::start(&["trap '' TERM; while :; do read -r line || sleep 0.01; done"]);
    drop(watched.stop.take());
    let ended = loop {
        watched.clock.advance(Duration::from_secs(5));
        if watched.ended.is_finished() {
            break watched.ended.await;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(ended.unwrap().unwrap(), Supervised::Stopped);
}
