//! A configuration that follows its file.

use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use sickbay_cli::config::{Config, ConfigErrors, ConfigWatcher, Reloaded};
use tempfile::TempDir;
use tokio::time::timeout;

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);

struct Scene {
    folder: TempDir,
    watcher: ConfigWatcher,
    problems: Receiver<ConfigErrors>,
}

impl Scene {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sickbay.toml");
        std::fs::write(&path, text).unwrap();
        let (report, problems) = mpsc::channel();
        let config = Config::load(&path).unwrap();
        let watcher = ConfigWatcher::start(config, move |errors| report.send(errors.clone()).unwrap());
        Self { folder, watcher: watcher.unwrap(), problems }
    }

    fn write(&self, text: &str) {
        replace(&self.folder.path().join("sickbay.toml"), text);
    }

    fn lease(&self) -> u64 {
        self.watcher.current().queues[&"a".try_into().unwrap()].policy.lease.as_secs()
    }
}

/// As editors do: a new file takes the place of the old one.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn a_good_new_version_is_put_in_force_by_itself() {
    let scene = Scene::new("[queues.a]\nlease = \"10s\"\n");
    let mut versions = scene.watcher.subscribe();
    scene.write("[queues.a]\nlease = \"20s\"\n");
    timeout(PATIENCE, versions.changed()).await.unwrap().unwrap();
    assert_eq!(scene.lease(), 20);
    // Written in place this time.
    std::fs::write(scene.folder.path().join("sickbay.toml"), "[queues.a]\nlease = \"300s\"\n").unwrap();
    timeout(PATIENCE, versions.changed()).await.unwrap().unwrap();
    assert_eq!(scene.lease(), 300);
}

#[tokio::test]
async fn a_broken_new_version_is_reported_and_the_old_one_stays_in_force() {
    let scene = Scene::new("[queues.a]\nlease = \"10s\"\n");
    let mut versions = scene.watcher.subscribe();
    scene.write("[queues.a]\nlease = \"soon\"\n");
    let errors = scene.problems.recv_timeout(PATIENCE).unwrap();
    assert!(errors.to_string().contains("`lease` is no duration"), "{errors}");
    assert_eq!(scene.lease(), 10);
    scene.write("[queues.a]\nlease = \"30s\"\n");
    timeout(PATIENCE, versions.changed()).await.unwrap().unwrap();
    assert_eq!(scene.lease(), 30);
    assert!(scene.problems.try_recv().is_err(), "one broken version is one report");
}

#[tokio::test]
async fn a_schema_that_changes_or_appears_is_a_new_version_too() {
    let scene = Scene::new("[queues.a]\n");
    let mut versions = scene.watcher.subscribe();
    let schema = scene.folder.path().join("a.json");
    scene.write("[queues.a.schemas]\nA = \"a.json\"\n");
    let errors = scene.problems.recv_timeout(PATIENCE).unwrap();
    assert!(errors.to_string().contains("there is no schema file"), "{errors}");
    replace(&schema, r#"{"type": "object"}"#);
    timeout(PATIENCE, versions.changed()).await.unwrap().unwrap();
    replace(&schema, r#"{"type": "string"}"#);
    timeout(PATIENCE, versions.changed()).await.unwrap().unwrap();
    let config = scene.watcher.current();
    let read = &config.queues[&"a".try_into().unwrap()].schemas[&"A".try_into().unwrap()];
    assert_eq!(read.text, r#"{"type": "string"}"#);
}

#[test]
fn a_reload_says_what_it_came_to() {
    let scene = Scene::new("[queues.a]\nlease = \"10s\"\n");
    assert_eq!(scene.watcher.reload(), Reloaded::Same);
    scene.write("# only a comment\n[queues.a]\nlease = \"10s\"\n");
    assert_eq!(scene.watcher.reload(), Reloaded::Same);
    scene.write("[queues.a]\nlease = 5\n");
    assert!(matches!(scene.watcher.reload(), Reloaded::Refused(_)));
    assert_eq!(scene.lease(), 10);
    std::fs::remove_file(scene.folder.path().join("sickbay.toml")).unwrap();
    assert!(matches!(scene.watcher.reload(), Reloaded::Refused(_)));
    assert_eq!(scene.lease(), 10);
}

#[test]
fn the_store_cannot_be_changed_while_it_is_in_use() {
    let scene = Scene::new("[queues.a]\nlease = \"10s\"\n");
    scene.write("[store]\npath = \"other.db\"\n[queues.a]\nlease = \"20s\"\n");
    let Reloaded::Refused(errors) = scene.watcher.reload() else { panic!("it was accepted") };
    let said = errors.to_string();
    assert!(said.contains("cannot be changed while it is in use") && said.contains(":2:8"), "{said}");
    assert_eq!(scene.lease(), 10);
}
