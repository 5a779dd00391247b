//! One process per message, with real ones.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sickbay_core::port::Desk;
use sickbay_core::{
    Cause, Counters, Key, Kind, MessageType, QueuePolicy, Reason, Stages, StreamKey, Timestamp,
};
use sickbay_testkit::ManualClock;
use sickbay_worker::exec::{ExecHandler, Program};
use sickbay_worker::{Answer, Handler};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::foreign::{comes_true, context, deferred, delivery, failure, handle, is_done, within};
use crate::scene::{SECOND, Scene, settle_down};

/// A folder of its own that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sickbay-handlers-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn shell(script: &str) -> Program {
    Program::new("sh").arg("-c").arg(script)
}

/// A pipe with a name. Whoever holds it open is alive: its end is the end of them all.
pub(crate) struct Fifo {
    pub(crate) path: PathBuf,
    lines: UnboundedReceiver<String>,
    _folder: Folder,
}

impl Fifo {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let path = folder.path("fifo");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let lines = Self::read(path.clone());
        Self { path, lines, _folder: folder }
    }

    fn read(path: PathBuf) -> UnboundedReceiver<String> {
        let (tell, lines) = unbounded_channel();
        std::thread::spawn(move || {
            let fifo = BufReader::new(File::open(path).unwrap());
            fifo.lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)));
        });
        lines
    }

    /// For the next who opens it, once all are gone.
    pub(crate) fn reopen(&mut self) {
        self.lines = Self::read(self.path.clone());
    }

    pub(crate) async fn line(&mut self) -> String {
        within(self.lines.recv()).await.expect("a line")
    }

    /// Returns once nobody holds it any more.
    pub(crate) async fn all_gone(&mut self) {
        while within(self.lines.recv()).await.is_some() {}
    }
}

fn handler(program: impl Into<Program>) -> (ExecHandler, ManualClock) {
    let clock = ManualClock::new();
    (ExecHandler::new(program, Arc::new(clock.clone())), clock)
}

async fn run(script: &str) -> Answer {
    let (handler, clock) = handler(shell(script));
    handle(&handler, &clock, "payload").await
}

#[tokio::test]
async fn a_program_gets_the_exact_bytes() {
    let folder = Folder::new();
    let (handler, clock) = handler(shell("cat > \"$OUT\"").env("OUT", folder.path("out")));
    let every_byte: Vec<u8> = (0..=255).collect();
    let ten_megabytes: Vec<u8> = (0..10_000_000u32).map(|n| (n / 7) as u8).collect();
    for payload in [Vec::new(), every_byte, b"\0\xFF\xFE\n\0".to_vec(), ten_megabytes] {
        assert!(is_done(&handle(&handler, &clock, payload.clone()).await));
        assert!(folder.read("out") == payload, "{} bytes", payload.len());
    }
}

#[tokio::test]
async fn a_program_that_does_not_read_its_input_is_no_error() {
    let payload = vec![b'x'; 10_000_000];
    for script in
        ["exit 0", "exec 0<&-; exit 0", "head -c 10 > /dev/null", "exec 0<&-; cat /dev/null; echo ok"]
    {
        let (handler, clock) = handler(shell(script));
        assert!(is_done(&handle(&handler, &clock, payload.clone()).await), "{script}");
    }
}

#[tokio::test]
async fn a_program_that_answers_while_it_reads_does_not_deadlock() {
    let folder = Folder::new();
    let (handler, clock) = handler(shell("tee /dev/stderr \"$OUT\"").env("OUT", folder.path("out")));
    let payload = vec![b'x'; 5_000_000];
    assert!(is_done(&handle(&handler, &clock, payload.clone()).await));
    assert!(folder.read("out") == payload);
}

#[tokio::test]
async fn exit_codes_mean_what_sysexits_says() {
    for (code, kind, reason) in [
        (75, Kind::Transient, Reason::DependencyFailure),
        (65, Kind::Poison, Reason::ValidationFailure),
        (1, Kind::Unknown, Reason::HandlerException),
        (64, Kind::Unknown, Reason::HandlerException),
        (127, Kind::Unknown, Reason::HandlerException),
    ] {
        let failure = failure(run(&format!("echo out; echo order {code} is wrong >&2; exit {code}")).await);
        assert_eq!((failure.kind, failure.reason), (kind, reason), "exit {code}");
        assert_eq!(failure.code.unwrap(), format!("exit {code}"));
        assert_eq!(failure.error, format!("order {code} is wrong"));
    }
    let silent = failure(run("exit 3").await);
    assert_eq!(silent.error, "exited with code 3 and wrote nothing to its standard error");
    assert!(is_done(&run("echo a warning >&2; exit 0").await));
}

#[tokio::test]
async fn a_signal_is_an_ordinary_failure_with_its_evidence() {
    let failure = failure(run("echo halfway >&2; kill -9 $$").await);
    assert_eq!((failure.kind, failure.reason), (Kind::Unknown, Reason::HandlerException));
    assert_eq!(failure.error, "killed by signal 9 (SIGKILL)\nhalfway");
    assert_eq!(failure.code.as_deref(), Some("signal 9"));
}

#[tokio::test]
async fn the_metadata_is_in_the_environment() {
    let folder = Folder::new();
    let program = shell("env -0 > \"$OUT\"").env("OUT", folder.path("out")).env("MODE", "live");
    let (handler, clock) = handler(program.env("SICKBAY_CAUSE", "stale").env("TRACESTATE", "stale"));
    let mut delivery = delivery(7, "x");
    let message = &mut delivery.message;
    message.message_type = Some(MessageType::new("OrderPaid").unwrap());
    message.stream = Some(StreamKey::new("customer 7").unwrap());
    message.key = Some(Key::new("k-1").unwrap());
    message.deadline_at = Some(Timestamp::from_millis(1_767_225_700_000));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (name, value) in [
        ("tenant-id", "acme\nLD_PRELOAD=/evil.so"),
        ("Tenant_Id", "second"),
        ("traceparent", parent),
        ("nul", "a\0b"),
        ("huge", &"x".repeat(300_000)),
    ] {
        message.headers.push((name.to_owned(), value.to_owned()));
    }
    delivery.counters = Counters { deliveries: 3, failures: 2, ..Counters::default() };
    delivery.stages = Stages::STORED.with(Stages::EVENT_STORED);
    delivery.suspect = true;
    let ctx = context(&clock, delivery);
    clock.advance(SECOND);
    assert!(is_done(&within(handler.handle(ctx.clone())).await));
    let env = String::from_utf8(folder.read("out")).unwrap();
    let get = |name: &str| env.split('\0').find_map(|line| line.strip_prefix(&format!("{name}=")));
    for (name, value) in [
        ("SICKBAY_MESSAGE_ID", ctx.id().to_string().as_str()),
        ("SICKBAY_QUEUE", "orders"),
        ("SICKBAY_TYPE", "OrderPaid"),
        ("SICKBAY_STREAM", "customer 7"),
        ("SICKBAY_KEY", "k-1"),
        ("SICKBAY_PRIORITY", "4"),
        ("SICKBAY_PUSHED_AT", "2026-01-01T00:00:00.000Z"),
        ("SICKBAY_DEADLINE", "2026-01-01T00:01:40.000Z"),
        ("SICKBAY_ATTEMPT", "3"),
        ("SICKBAY_FAILURES", "2"),
        ("SICKBAY_LAST_ATTEMPT", "0"),
        ("SICKBAY_STAGES", "Stored|EventStored"),
        ("SICKBAY_TOKEN", ctx.token().to_string().as_str()),
        ("SICKBAY_TIME_BUDGET_MS", "39000"),
        ("SICKBAY_SUSPECT", "1"),
        ("SICKBAY_HEADER_TENANT_ID", "acme\nLD_PRELOAD=/evil.so"),
        ("SICKBAY_HEADERS_LEFT_OUT", "3"),
        ("TRACEPARENT", parent),
        ("MODE", "live"),
    ] {
        assert_eq!(get(name), Some(value), "{name}");
    }
    assert_eq!((get("LD_PRELOAD"), get("SICKBAY_CAUSE"), get("TRACESTATE")), (None, None, None));
    assert!(get("PATH").is_some(), "the environment is inherited");
}

#[tokio::test]
async fn the_environment_and_the_directory_can_be_chosen() {
    let folder = Folder::new();
    std::fs::write(folder.path("pay.sh"), "#!/bin/sh\nexport -p > out; pwd -P >> out\n").unwrap();
    std::fs::set_permissions(folder.path("pay.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    let program = Program::new("./pay.sh").env_clear().env("LANG", "C").current_dir(folder.path(""));
    let (handler, clock) = handler(program);
    let mut delivery = delivery(1, "x");
    delivery.cause = Some(Cause::LeaseExpired);
    assert!(is_done(&within(handler.handle(context(&clock, delivery))).await));
    let out = String::from_utf8(folder.read("out")).unwrap();
    assert!(out.contains("LANG='C'") && out.contains("SICKBAY_CAUSE='lease_expired'"), "{out}");
    assert!(!out.contains("HOME=") && !out.contains("CARGO"), "{out}");
    let directory = std::fs::canonicalize(folder.path("")).unwrap();
    assert_eq!(out.lines().last().map(Path::new), Some(directory.as_path()));
}

#[tokio::test]
async fn a_flood_of_errors_is_read_to_its_end_in_bounded_memory() {
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:").map(str::trim).map(str::to_owned));
        line.and_then(|line| line.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let before = peak();
    let flood = "head -c 200000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo the end >&2; exit 1";
    let failure = failure(run(flood).await);
    assert!(failure.error.ends_with("xxx\nthe end"));
    assert!((60 * 1024..=64 * 1024).contains(&failure.error.len()), "{}", failure.error.len());
    assert!(peak() - before < 100_000, "{} kB more", peak() - before);
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_named() {
    let (missing, clock) = handler("no-such-program-anywhere");
    let error = failure(handle(&missing, &clock, "x").await);
    assert_eq!(error.kind, Kind::Transient);
    assert!(
        error.error.starts_with("the handler's program \"no-such-program-anywhere\" cannot be started: ")
    );
    assert_eq!(error.code.as_deref(), Some("ENOENT"));
    let folder = Folder::new();
    std::fs::write(folder.path("pay.sh"), "#!/bin/sh\n").unwrap();
    let (forbidden, clock) = handler(folder.path("pay.sh"));
    let error = failure(handle(&forbidden, &clock, "x").await);
    assert!(error.error.contains("pay.sh") && error.error.ends_with("is it executable?"), "{}", error.error);
}

#[tokio::test]
async fn the_last_line_of_the_output_may_say_more() {
    let say = |said: &str, code: u8| format!("echo working; echo '{{\"sickbay\": {said}}}'; exit {code}");
    let answer = run(&say(r#"{"defer": "10s"}"#, 0)).await;
    assert_eq!(deferred(&answer), Some(10 * SECOND));
    assert_eq!(deferred(&run(&say(r#"{"defer": 2}"#, 75)).await), Some(2 * SECOND));
    let later = failure(run(&say(r#"{"retry_after": "1h30m"}"#, 75)).await);
    assert_eq!((later.kind, later.retry_after), (Kind::Transient, Some(Duration::from_secs(5400))));
    let unclear = failure(run(&say(r#"{"defer": "soon"}"#, 0)).await);
    assert_eq!(unclear.kind, Kind::Unknown, "what was perhaps deferred is not done");
    assert!(unclear.error.contains("\"soon\" is no duration"), "{}", unclear.error);
    let unclear = failure(run(&say(r#"{"retry": 1}"#, 75)).await);
    assert!(unclear.error.contains("unknown field `retry`"), "{}", unclear.error);
    assert!(is_done(&run("echo '{\"total\": 7}'").await));

    let (handler, clock) = handler(shell(&say(r#"{"stages": ["Stored", "Application2"]}"#, 1)));
    let ctx = context(&clock, delivery(1, "x"));
    within(handler.handle(ctx.clone())).await;
    assert_eq!(ctx.stages().to_string(), "Stored|Application2");
}

#[tokio::test]
async fn what_a_program_leaves_behind_neither_delays_the_answer_nor_lives_on() {
    let mut fifo = Fifo::new();
    let (handler, clock) =
        handler(shell("exec 3>\"$FIFO\"; sleep 300 & echo started >&3").env("FIFO", &fifo.path));
    assert!(is_done(&handle(&handler, &clock, "x").await));
    fifo.all_gone().await;
    // Whoever has left the group is not ours, and must not keep the answer from coming.
    let (mut fifo, folder) = (Fifo::new(), Folder::new());
    assert!(Command::new("mkfifo").arg(folder.path("sync")).status().unwrap().success());
    let stranger = r#"exec 3>"$FIFO"
        setsid sh -c 'echo $$ >&3; echo > "$SYNC"; exec sleep 300' &
        read line < "$SYNC"
        exit 3"#;
    let program = shell(stranger).env("FIFO", &fifo.path).env("SYNC", folder.path("sync"));
    let (handler, clock) = self::handler(program);
    assert_eq!(failure(handle(&handler, &clock, "x").await).code.as_deref(), Some("exit 3"));
    let pid = fifo.line().await;
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    fifo.all_gone().await;
}

/// A program whose grandchild will not go when asked.
const STUBBORN: &str = r#"
    exec 3>"$FIFO"
    sh -c 'trap "" TERM; echo grandchild >&3; sleep 300' &
    echo waiting for the bank >&2
    echo child >&3
    wait
"#;

async fn both_are_there(fifo: &mut Fifo) {
    let mut there = [fifo.line().await, fifo.line().await];
    there.sort();
    assert_eq!(there, ["child", "grandchild"]);
    settle_down().await;
}

#[tokio::test]
async fn an_overrun_ends_the_whole_group_and_keeps_its_last_words() {
    let policy = QueuePolicy { time_budget: 10 * SECOND, ..QueuePolicy::default() };
    let scene = Scene::new(policy).await;
    let mut fifo = Fifo::new();
    let id = scene.push("x").await;
    let running =
        scene.worker(ExecHandler::new(shell(STUBBORN).env("FIFO", &fifo.path), scene.clock())).start();
    both_are_there(&mut fifo).await;
    scene.clock.advance(10 * SECOND);
    scene.quarantined(1).await;
    scene.pass(2).await;
    fifo.all_gone().await;
    let view = scene.view(id).await;
    let attempt = &view.history[0];
    assert_eq!(view.dead.unwrap().reason, Reason::TimeoutExceeded);
    assert_eq!(attempt.output.as_deref(), Some("waiting for the bank\n"));
    assert_eq!(running.stats().overruns, 1);
}

#[tokio::test]
async fn a_program_that_is_told_to_end_has_a_second_to_clean_up() {
    let mut fifo = Fifo::new();
    let script =
        r#"exec 3>"$FIFO"; sleep 300 & trap 'echo cleaned up >&3; exit 0' TERM; echo ready >&3; wait"#;
    let (handler, clock) = handler(shell(script).env("FIFO", &fifo.path));
    let work = tokio::spawn(async move { handler.handle(context(&clock, delivery(1, "x"))).await });
    assert_eq!(fifo.line().await, "ready");
    work.abort();
    assert_eq!(fifo.line().await, "cleaned up");
    fifo.all_gone().await;
}

#[tokio::test]
async fn a_worker_that_stops_leaves_no_process_behind() {
    let scene = Scene::with_attempts(5).await;
    let mut fifo = Fifo::new();
    let id = scene.push("x").await;
    let handler = ExecHandler::new(shell(STUBBORN).env("FIFO", &fifo.path), scene.clock());
    let running = scene.worker(handler).stop_limit(Duration::ZERO).start();
    both_are_there(&mut fifo).await;
    let stopped = running.stop().await;
    assert_eq!(stopped.abandoned, 1);
    scene.pass(2).await;
    fifo.all_gone().await;
    let counters = scene.view(id).await.counters;
    assert_eq!((counters.failures, counters.releases), (0, 1));
}

#[tokio::test]
async fn a_lost_lease_ends_the_whole_group() {
    let scene = Scene::with_attempts(5).await;
    let mut fifo = Fifo::new();
    let id = scene.push("x").await;
    let handler = ExecHandler::new(shell(STUBBORN).env("FIFO", &fifo.path), scene.clock());
    let _running = scene.worker(handler).start();
    both_are_there(&mut fifo).await;
    // Nobody gets it a second time, or a second group would hold the pipe.
    scene.store.set_paused(&scene.queue, true).await.unwrap();
    scene.source.renewals_fail.store(true, Ordering::SeqCst);
    scene.source.turns_fail.store(true, Ordering::SeqCst);
    scene.pass(40).await;
    fifo.all_gone().await;
    assert_eq!(scene.view(id).await.counters.failures, 0);
}

#[test]
fn a_runtime_that_ends_leaves_no_process_behind() {
    let mut fifo = Fifo::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (handler, clock) = handler(shell(STUBBORN).env("FIFO", &fifo.path));
    let first = runtime();
    first.block_on(async {
        tokio::spawn(async move { handler.handle(context(&clock, delivery(1, "x"))).await });
        both_are_there(&mut fifo).await;
    });
    drop(first);
    runtime().block_on(fifo.all_gone());
}

#[tokio::test]
async fn a_queue_with_a_shell_script_completes_retries_and_quarantines() {
    let scene = Scene::with_attempts(2).await;
    let script = r#"case "$(cat)" in
        good) echo paid ;;
        busy) echo "bank is closed, attempt $SICKBAY_ATTEMPT" >&2; [ "$SICKBAY_ATTEMPT" -gt 1 ] || exit 75 ;;
        *) echo "no order" >&2; exit 65 ;;
    esac"#;
    let (busy, bad) = (scene.push("busy").await, scene.push("bad").await);
    scene.push("good").await;
    let _running = scene.worker(ExecHandler::new(shell(script), scene.clock())).start();
    comes_true(async || {
        let stats = scene.stats().await;
        (stats.completed, stats.failed, stats.dead) == (1, 1, 1)
    })
    .await;
    let failed = scene.view(busy).await.history[0].failure.clone().unwrap();
    assert_eq!((failed.kind, failed.error.as_str()), (Kind::Transient, "bank is closed, attempt 1"));
    let dead = scene.view(bad).await.dead.unwrap();
    assert_eq!((dead.reason, dead.error.as_str()), (Reason::ValidationFailure, "no order"));
    scene.clock.advance(10 * SECOND);
    comes_true(async || scene.stats().await.completed == 2).await;
}

/// The first code block of this language in the documentation that begins with this line.
pub(crate) fn documented(first_line: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/handlers.md");
    let text = std::fs::read_to_string(path).unwrap();
    let from = text.find(first_line).unwrap_or_else(|| panic!("no example {first_line:?}"));
    text[from..].split("```").next().unwrap().to_owned()
}

#[tokio::test]
async fn the_documented_script_does_what_it_says() {
    let folder = Folder::new();
    std::fs::write(folder.path("pay.sh"), documented("#!/bin/sh\n# pay.sh")).unwrap();
    std::fs::set_permissions(folder.path("pay.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    let program = Program::new("./pay.sh").current_dir(folder.path(""));
    let (handler, clock) = handler(program);
    assert!(is_done(&handle(&handler, &clock, "{\"amount\": 7}").await));
    let told = failure(handle(&handler, &clock, "{}").await);
    assert_eq!((told.kind, told.reason), (Kind::Poison, Reason::ValidationFailure));
    std::fs::write(folder.path("closed"), "").unwrap();
    let told = failure(handle(&handler, &clock, "{\"amount\": 7}").await);
    assert_eq!((told.kind, told.retry_after), (Kind::Transient, Some(600 * SECOND)));
    assert_eq!(told.error, "the bank is closed");
}
