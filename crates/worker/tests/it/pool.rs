//! Programs that stay, with real ones in Python.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use sickbay_core::policy::RetryPolicy;
use sickbay_core::{Kind, QueuePolicy, Reason, Verdict};
use sickbay_testkit::ManualClock;
use sickbay_worker::exec::{ExecPool, Program};
use sickbay_worker::{Answer, Handler};

use crate::exec::{Fifo, documented, shell};
use crate::foreign::{
    BUDGET, comes_true, context, deferred, delivery, failure, handle, is_done, script, within,
};
use crate::scene::{SECOND, Scene, settle_down};

fn python() -> Program {
    Program::new("python3").arg(script("pool.py"))
}

fn pool(program: impl Into<Program>) -> (ExecPool, ManualClock) {
    let clock = ManualClock::new();
    (ExecPool::new(program, Arc::new(clock.clone())).programs(1), clock)
}

/// Lets all of them run at the same time.
async fn handle_all(pool: &ExecPool, clock: &ManualClock, payloads: &[&str]) -> Vec<Answer> {
    let handled = payloads
        .iter()
        .zip(1..)
        .map(|(payload, number)| pool.handle(context(clock, delivery(number, payload.to_string()))));
    within(join_all(handled)).await
}

#[tokio::test]
async fn a_program_stays_and_answers_many() {
    let (pool, clock) = pool(python());
    let answers = handle_all(&pool, &clock, &["fine"; 200]).await;
    assert!(answers.iter().all(is_done));
    assert_eq!((pool.stats().started, pool.stats().answered), (1, 200));
    let who = failure(handle(&pool, &clock, "who").await).error;
    assert_eq!(failure(handle(&pool, &clock, "who").await).error, who);
}

#[tokio::test]
async fn programs_share_the_work() {
    let clock = ManualClock::new();
    let pool = ExecPool::new(python(), Arc::new(clock.clone())).programs(2);
    let answers = handle_all(&pool, &clock, &["who"; 4]).await;
    let mut pids: Vec<String> = answers.into_iter().map(|answer| failure(answer).error).collect();
    pids.sort();
    pids.dedup();
    assert_eq!(pids.len(), 2);
}

#[tokio::test]
async fn answers_may_come_in_any_order() {
    let (pool, clock) = pool(python());
    let answers = handle_all(&pool, &clock, &["keep 5"; 5]).await;
    for (answer, number) in answers.into_iter().zip(1..) {
        let id = delivery(number, "").message.id;
        assert_eq!(failure(answer).error, format!("answer for {id}"));
    }
}

#[tokio::test]
async fn the_line_says_everything_and_the_bytes_are_exact() {
    let (pool, clock) = pool(python());
    let bytes: Vec<u8> = (0..=255).rev().collect();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(failure(handle(&pool, &clock, bytes).await).error, hex);
    let mut delivery = delivery(1, "show");
    delivery.message.headers = vec![("a".into(), "1\n2".into()), ("a".into(), "again".into())];
    let line = failure(within(pool.handle(context(&clock, delivery.clone()))).await).error;
    let seen: serde_json::Value = serde_json::from_str(&line).unwrap();
    let expected = serde_json::json!({
        "id": delivery.message.id, "queue": "orders", "type": null, "stream": null, "key": null,
        "attempt": 1, "failures": 0, "last_attempt": false, "stages": [], "cause": null, "suspect": false,
        "token": delivery.lease.token.to_string(), "pushed_at": "2026-01-01T00:00:00.000Z", "deadline": null,
        "time_budget_ms": 40_000, "headers": {"a": "1\n2"}, "payload": "show",
    });
    assert_eq!(seen, expected);
    let long = format!("say {{\"error\": \"{}\"}}", "ü\\n".repeat(100_000));
    assert!(failure(handle(&pool, &clock, long).await).error == "ü\n".repeat(100_000));
    assert_eq!(pool.stats().started, 1);
}

#[tokio::test]
async fn an_answer_says_what_became_of_its_message() {
    let (pool, clock) = pool(python());
    let say = |answer: &str| format!("say {answer}");
    let told = failure(
        handle(&pool, &clock, say(r#"{"error": "no", "kind": "transient", "retry_after": "30s"}"#)).await,
    );
    assert_eq!((told.kind, told.reason), (Kind::Transient, Reason::DependencyFailure));
    assert_eq!((told.error.as_str(), told.retry_after), ("no", Some(30 * SECOND)));
    let answer =
        handle(&pool, &clock, say(r#"{"error": "no", "kind": "poison", "reason": "ValidationFailure"}"#))
            .await;
    assert!(
        matches!(&answer, Answer::Verdict(Verdict::Poison(failed)) if failed.failure.reason == Reason::ValidationFailure)
    );
    let told =
        failure(handle(&pool, &clock, say(r#"{"ok": false, "error": "x", "code": "ECONNRESET"}"#)).await);
    assert_eq!((told.kind, told.reason), (Kind::Transient, Reason::TransportUnavailable), "by the rules");
    assert_eq!(deferred(&handle(&pool, &clock, say(r#"{"defer": "10s"}"#)).await), Some(10 * SECOND));
    let ctx = context(&clock, delivery(1, say(r#"{"ok": true, "stages": ["Published"]}"#)));
    assert!(is_done(&within(pool.handle(ctx.clone())).await));
    assert_eq!(ctx.stages().to_string(), "Published");
}

#[tokio::test]
async fn a_mistake_in_an_answer_fails_its_message_only() {
    let (pool, clock) = pool(python());
    for (answer, problem) in [
        (r#"{"ok": true, "error": "both"}"#, "it needs one of"),
        (r#"{"done": 1}"#, "it needs one of"),
        (r#"{"error": "x", "kind": "fatal"}"#, "\"fatal\" is no failure kind"),
        (r#"{"defer": "soon"}"#, "\"soon\" is no duration"),
        (r#"{"ok": "yes"}"#, "expected a boolean"),
    ] {
        let told = failure(handle(&pool, &clock, format!("say {answer}")).await);
        assert_eq!(told.kind, Kind::Unknown, "{answer}");
        assert!(
            told.error.starts_with("the program's answer ") && told.error.contains(problem),
            "{}",
            told.error
        );
    }
    assert_eq!(pool.stats().started, 1);
}

#[tokio::test]
async fn a_line_that_is_no_answer_is_named() {
    let (pool, clock) = pool(python());
    for (line, problem) in [
        ("loading model...", "wrote a line that is no answer: \"loading model...\" (expected value"),
        ("{\"ok\": true}", "missing field `id`"),
        (
            "{\"id\": \"zzzzzzzzzzzz\", \"ok\": true}",
            "an answer for message zzzzzzzzzzzz, which it does not have",
        ),
    ] {
        let told = failure(handle(&pool, &clock, format!("write {line}")).await);
        assert_eq!((told.kind, told.code.as_deref()), (Kind::Unknown, Some("PROTOCOL")));
        assert!(told.error.contains(problem), "{}", told.error);
        assert!(is_done(&handle_slowly(&pool, &clock, "fine").await), "it goes on with a new program");
    }
}

/// Lets time pass, little by little, until it has come: programs may have to be started again first.
async fn passing<T>(clock: &ManualClock, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            value = &mut work => return value,
            () = settle_down() => clock.advance(Duration::from_millis(1)),
        }
    }
}

async fn handle_slowly(pool: &ExecPool, clock: &ManualClock, payload: &str) -> Answer {
    passing(clock, handle(pool, clock, payload.to_owned())).await
}

#[tokio::test]
async fn a_lone_killer_is_charged_with_the_evidence() {
    let (pool, clock) = pool(python());
    assert!(is_done(&handle(&pool, &clock, "fine").await));
    let told = failure(handle(&pool, &clock, "die").await);
    assert_eq!((told.kind, told.code.as_deref()), (Kind::Unknown, Some("signal 9")));
    assert_eq!(told.error, "the program was killed by signal 9 (SIGKILL) before it answered\nit hurts");
    let told = failure(handle_slowly(&pool, &clock, "exit 75").await);
    assert_eq!((told.kind, told.code.as_deref()), (Kind::Transient, Some("exit 75")));
    assert_eq!(told.error, "the program exited with code 75 before it answered\ngiving up");
    assert!(is_done(&handle_slowly(&pool, &clock, "fine").await));
    assert_eq!(pool.stats().deaths, 2);
}

#[tokio::test]
async fn no_bystander_is_blamed_for_a_death() {
    let (pool, clock) = pool(python());
    let mut payloads = vec!["fine"; 12];
    (payloads[3], payloads[7]) = ("die", "die");
    let answers = passing(&clock, handle_all(&pool, &clock, &payloads)).await;
    for (answer, payload) in answers.into_iter().zip(&payloads) {
        match *payload {
            "die" => assert_eq!(failure(answer).code.as_deref(), Some("signal 9")),
            _ => assert!(is_done(&answer), "{answer:?}"),
        }
    }
    let stats = pool.stats();
    assert_eq!((stats.deaths, stats.answered, stats.given_back), (3, 10, 0), "together, then each alone");
}

#[tokio::test]
async fn no_bystander_is_blamed_for_an_overrun() {
    let mut fifo = Fifo::new();
    let (pool, clock) = pool(python().env("FIFO", &fifo.path));
    let mut together = Box::pin(handle_all(&pool, &clock, &["hang", "fine", "fine"]));
    assert_eq!(while_running(&mut together, fifo.line()).await, "hanging");
    clock.advance(BUDGET);
    let answers = together.await;
    assert!(answers.iter().all(|answer| deferred(answer) == Some(Duration::ZERO)), "{answers:?}");
    passing(&clock, fifo.all_gone()).await;

    // They come back, and each has a program of its own: who hangs there is charged, and nobody else.
    fifo.reopen();
    let mut alone = Box::pin(handle_all(&pool, &clock, &["hang", "fine", "fine"]));
    assert_eq!(while_running(&mut alone, passing(&clock, fifo.line())).await, "hanging");
    clock.advance(BUDGET / 4);
    while_running(&mut alone, settle_down()).await;
    clock.advance(BUDGET);
    let mut answers = alone.await.into_iter();
    let told = failure(answers.next().unwrap());
    assert_eq!((told.kind, told.reason), (Kind::Poison, Reason::TimeoutExceeded));
    assert!(told.error.ends_with("waiting for the bank"), "{}", told.error);
    assert!(answers.all(|answer| deferred(&answer) == Some(Duration::ZERO)), "they had no turn in time");
    passing(&clock, fifo.all_gone()).await;
    assert!(is_done(&handle_slowly(&pool, &clock, "fine").await));
}

/// Lets the work go on until something else has come.
async fn while_running<T>(
    work: &mut (impl Future<Output: std::fmt::Debug> + Unpin),
    other: impl Future<Output = T>,
) -> T {
    tokio::select! {
        done = work => panic!("it has ended: {done:?}"),
        value = other => value,
    }
}

#[tokio::test]
async fn a_killer_that_comes_back_runs_alone_at_once() {
    let (pool, clock) = pool(python());
    let payloads = ["die", "fine", "fine"];
    let answers = passing(&clock, handle_all(&pool, &clock, &payloads)).await;
    assert_eq!(failure(answers.into_iter().next().unwrap()).code.as_deref(), Some("signal 9"));
    let before = pool.stats().deaths;
    let answers = passing(&clock, handle_all(&pool, &clock, &payloads)).await;
    assert!(answers[1..].iter().all(is_done));
    assert_eq!(pool.stats().deaths, before + 1, "nobody was in the program with it");
}

#[tokio::test]
async fn a_program_that_never_answers_is_started_again_ever_more_slowly() {
    let (pool, clock) = pool(shell("echo no database >&2; exit 1"));
    let told = failure(handle(&pool, &clock, "x").await);
    assert_eq!(told.error, "the program exited with code 1 before it answered\nno database");
    for pause in [100, 200, 400] {
        let mut next = Box::pin(handle(&pool, &clock, "x"));
        while_running(&mut next, settle_down()).await;
        clock.advance(Duration::from_millis(pause - 1));
        while_running(&mut next, settle_down()).await;
        clock.advance(Duration::from_millis(1));
        assert_eq!(failure(next.await).code.as_deref(), Some("exit 1"));
    }
    assert_eq!(pool.stats().started, 4);
    // Whoever waits too long for it is given back.
    let mut next = Box::pin(handle(&pool, &clock, "x"));
    while_running(&mut next, settle_down()).await;
    drop(next);
    let slow = pool_that_rests(&clock, pool).await;
    assert_eq!(deferred(&slow), Some(Duration::ZERO));
}

async fn pool_that_rests(clock: &ManualClock, pool: ExecPool) -> Answer {
    // After eight deaths in a row it rests for longer than a quarter of the time budget.
    for _ in 0..4 {
        clock.advance(10 * SECOND);
        let told = failure(handle(&pool, clock, "x").await);
        assert_eq!(told.code.as_deref(), Some("exit 1"));
    }
    let mut next = Box::pin(handle(&pool, clock, "x"));
    while_running(&mut next, settle_down()).await;
    clock.advance(BUDGET / 4);
    next.await
}

#[tokio::test]
async fn a_program_may_end_by_itself_between_messages() {
    // Answers one message, then ends.
    let once = r#"read line; id=${line#*\"id\":\"}; echo "{\"id\": \"${id%%\"*}\", \"ok\": true}""#;
    let (pool, clock) = pool(shell(once));
    for _ in 0..3 {
        assert!(is_done(&handle(&pool, &clock, "x").await));
        comes_true(async || pool.stats().running == 0).await;
    }
    assert_eq!((pool.stats().started, pool.stats().deaths), (3, 0));
}

#[tokio::test]
async fn a_program_that_closes_its_output_is_ended() {
    let (pool, clock) = pool(shell("exec 1>&-; sleep 300"));
    let told = failure(passing(&clock, handle(&pool, &clock, "x")).await);
    assert_eq!(told.error, "the program closed its input or output and did not end");
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_named() {
    let (pool, clock) = pool("no-such-program-anywhere");
    for _ in 0..2 {
        let told = failure(handle(&pool, &clock, "x").await);
        assert_eq!((told.kind, told.code.as_deref()), (Kind::Transient, Some("ENOENT")));
        assert!(told.error.contains("\"no-such-program-anywhere\" cannot be started"), "{}", told.error);
    }
}

#[tokio::test]
async fn programs_end_with_their_pool() {
    let mut fifo = Fifo::new();
    let script =
        r#"exec 3>"$FIFO"; echo ready >&3; sh -c 'trap "" TERM; sleep 300' & while read line; do :; done"#;
    let (pool, clock) = pool(shell(script).env("FIFO", &fifo.path));
    let mut work = Box::pin(handle(&pool, &clock, "x"));
    assert_eq!(while_running(&mut work, fifo.line()).await, "ready");
    drop(work);
    drop(pool);
    passing(&clock, fifo.all_gone()).await;
}

#[tokio::test]
async fn a_queue_with_a_pool_completes_all_but_the_killers() {
    let scene = Scene::new(QueuePolicy::with_retry(RetryPolicy::none())).await;
    let mut killers = Vec::new();
    for n in 0..60 {
        let id = scene.push(if n % 20 == 7 { "die" } else { "fine" }).await;
        if n % 20 == 7 {
            killers.push(id);
        }
    }
    let pool = Arc::new(ExecPool::new(python(), scene.clock()).programs(2));
    let handler: Arc<dyn Handler> = pool.clone();
    let _running = scene.worker(handler).concurrency(32).start();
    let all_settled = comes_true(async || {
        let stats = scene.stats().await;
        stats.completed + stats.dead == 60
    });
    passing(&scene.clock, all_settled).await;
    let dead = scene.dead().await;
    assert_eq!(dead.len(), 3);
    for letter in dead {
        assert!(killers.contains(&letter.id));
        assert_eq!(letter.error, "the program was killed by signal 9 (SIGKILL) before it answered");
        assert_eq!((letter.reason, letter.counters.failures), (Reason::HandlerException, 1));
    }
}

#[tokio::test]
async fn an_overrun_in_a_pool_is_counted_as_one_and_keeps_the_last_words() {
    let policy = QueuePolicy { time_budget: BUDGET, lease: 10 * BUDGET, ..QueuePolicy::default() };
    let scene = Scene::new(policy).await;
    let mut fifo = Fifo::new();
    let id = scene.push("hang").await;
    let pool = ExecPool::new(python().env("FIFO", &fifo.path), scene.clock()).programs(1);
    let running = scene.worker(pool).start();
    assert_eq!(fifo.line().await, "hanging");
    settle_down().await;
    scene.clock.advance(BUDGET);
    comes_true(async || scene.stats().await.dead == 1).await;
    let view = scene.view(id).await;
    assert_eq!(view.history[0].output.as_deref(), Some("waiting for the bank\n"));
    assert_eq!((view.dead.unwrap().reason, running.stats().overruns), (Reason::TimeoutExceeded, 1));
    passing(&scene.clock, fifo.all_gone()).await;
}

#[tokio::test]
async fn the_documented_program_does_what_it_says() {
    let (pool, clock) = pool(Program::new("python3").arg("-c").arg(documented("# pay.py")));
    assert!(is_done(&handle(&pool, &clock, "{\"amount\": 7}").await));
    let told = failure(handle(&pool, &clock, "{}").await);
    assert_eq!((told.kind, told.reason), (Kind::Poison, Reason::ValidationFailure));
    assert_eq!(told.error, "KeyError('amount')");
}
