//! Real processes, really killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use sickbay::{MessageId, QueueName, Sickbay};

use crate::examples::example;

/// Starts the service, lets it push so many messages, and kills it. What it said was pushed is added.
fn live_and_die(store: &Path, lines: usize, pushed: &mut Vec<MessageId>) {
    let mut child = Command::new(example("busy")).arg(store).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut lines_left = lines;
    for line in output.lines().map_while(Result::ok) {
        pushed.push(line.strip_prefix("pushed ").unwrap().parse().unwrap());
        lines_left = lines_left.saturating_sub(1);
        if lines_left == 0 {
            // SIGKILL. What is still in the pipe was said before and counts.
            child.kill().unwrap();
        }
    }
    assert_eq!(child.wait().unwrap().signal(), Some(9), "it was killed and did not end by itself");
}

fn handled(store: &Path) -> BTreeMap<MessageId, u32> {
    let connection = rusqlite::Connection::open(store).unwrap();
    let mut statement = connection.prepare("SELECT id, count(*) FROM handled GROUP BY id").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).map(|(id, count)| (id.parse().unwrap(), count)).collect()
}

/// How many were done by a later delivery than their first.
fn done_again(store: &Path) -> usize {
    let connection = rusqlite::Connection::open(store).unwrap();
    connection.query_row("SELECT count(*) FROM handled WHERE attempt > 1", [], |row| row.get(0)).unwrap()
}

#[test]
fn killed_200_times_nothing_acknowledged_is_lost_and_every_redelivery_has_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("busy.db");
    let mut pushed = Vec::new();
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    for _ in 0..200 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        live_and_die(&store, (random >> 33) as usize % 150 + 1, &mut pushed);
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let queue = QueueName::new("busy").unwrap();
    // Before anybody else touches the file: this is how a program finds it whose predecessor was killed.
    let bay = Sickbay::open(&store).unwrap();
    let done = handled(&store);
    assert!(done.values().all(|count| *count == 1), "an effect was committed twice");
    runtime.block_on(async {
        let mut redelivered = done_again(&store);
        for id in &pushed {
            if done.contains_key(id) {
                continue;
            }
            let view = bay.store().find(id.to_string().parse().unwrap()).await.unwrap();
            let view = view.unwrap_or_else(|| panic!("{id} was acknowledged and is lost"));
            // Nobody holds it now, so each of its deliveries has ended, and each end is on record.
            assert_eq!(view.counters.deliveries as usize, view.history.len(), "{id}: {:?}", view.history);
            redelivered += view.history.len();
        }
        let stats = bay.store().stats(&queue).await.unwrap();
        assert!(stats.adds_up(), "{stats:?}");
        assert_eq!(stats.dead, 0, "nothing was poison");
        assert!(redelivered > 0 && done.len() > 200, "{redelivered} redelivered, {} done", done.len());
        let left = stats.pushed - stats.completed;
        println!(
            "{} pushed, {} done, {left} left, {redelivered} were delivered again",
            pushed.len(),
            done.len()
        );
    });
}
