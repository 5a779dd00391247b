//! Two and more processes on one file, and handlers in any language.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::scene::Scene;

const PAY: &str = r#"#!/bin/sh
# Pays what it gets on stdin.
body=$(cat)
case "$body" in
  *bad*) echo "order $SICKBAY_ID is bad" >&2; exit 65 ;;
  *later*) echo "the bank is away" >&2; exit 75 ;;
  *kill*) kill -9 $$ ;;
  *flood*) head -c 3000000 /dev/zero | tr '\0' 'x' >&2; echo "the end" >&2; exit 65 ;;
  *slow*) sleep 600 ;;
esac
printf %s "$body" > "paid.$$"
"#;

const WEB: &str = r#"
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        status = 422 if b"bad" in body else 503 if b"later" in body else 204 if body == bytes(range(256)) else 200
        answer = b"" if status in (200, 204) else b"no: " + body
        self.send_response(status)
        if status != 204:
            self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// A process that ends with its test, however that ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A configuration whose queue "sh" is handled by the script.
fn with_script() -> Scene {
    let scene = Scene::new();
    scene.script("pay.sh", PAY);
    scene.write(
        "sickbay.toml",
        "[queues.sh]\nretry = { attempts = 2, cooldown = \"1ms\" }\nconcurrency = 2\ntime_budget = \"2s\"\n\
         handler = { exec = [\"./pay.sh\"] }\n[queues.plain]\n",
    );
    scene
}

fn figure(stats: &Value, queue: &str, name: &str) -> u64 {
    let queues = stats["queues"].as_array().unwrap();
    let found = queues.iter().find(|one| one["name"] == queue).unwrap();
    found["stats"][name].as_u64().unwrap()
}

/// Waits until so many messages have come to an end.
fn until_settled(scene: &Scene, queue: &str, count: u64) -> Value {
    scene.until("stats", |stats| figure(stats, queue, "completed") + figure(stats, queue, "dead") == count)
}

#[test]
fn others_use_the_store_through_its_owner() {
    let scene = with_script();
    let mut serve = scene.start("serve --no-work");
    assert!(scene.path("sickbay.db.sock").exists());
    scene.ok("push plain hello");
    let id = scene.ok("push plain bad --type T");
    scene.ok(&format!("message dead-letter {}", id.trim()));
    assert!(
        scene.ok("quarantine list").contains("  plain  T     Operator"),
        "{}",
        scene.ok("quarantine list")
    );
    let stats = scene.json("stats");
    assert_eq!((figure(&stats, "plain", "pending"), figure(&stats, "plain", "dead")), (1, 1));
    assert!(scene.ok("doctor").contains("ok   socket      "));
    let ran = scene.run("serve");
    assert_eq!(ran.code, 5);
    assert!(ran.err.contains("is served already by another process"), "{}", ran.err);
    serve.signal("TERM");
    serve.hear("stopped");
    assert_eq!(serve.ended(), Some(0));
    assert!(!scene.path("sickbay.db.sock").exists());
    assert_eq!(figure(&scene.json("stats"), "plain", "pending"), 1);
}

#[test]
fn after_an_owner_that_was_killed_the_next_command_takes_over_and_nothing_is_lost() {
    let scene = with_script();
    let serve = scene.start("serve --no-work");
    for _ in 0..5 {
        scene.ok("push plain hello");
    }
    serve.signal("KILL");
    assert_eq!(serve.ended(), None);
    assert!(scene.path("sickbay.db.sock").exists(), "it had no time to tidy up");
    scene.ok("push plain hello");
    assert_eq!(figure(&scene.json("stats"), "plain", "pending"), 6);
    let again = scene.start("serve --no-work");
    assert_eq!(figure(&scene.json("stats"), "plain", "pending"), 6);
    drop(again);
}

#[test]
fn an_owner_that_does_not_answer_is_named() {
    let scene = Scene::with_queue();
    let lock = std::fs::OpenOptions::new().write(true).open(scene.path("sickbay.db.lock")).unwrap();
    lock.lock().unwrap();
    std::fs::write(scene.path("sickbay.db.lock"), "4242").unwrap();
    let ran = scene.run("stats");
    assert_eq!((ran.code, ran.out.as_str()), (6, ""));
    assert_eq!(
        ran.err,
        "\
error: sickbay.db belongs to another running process (4242), and nobody answers at sickbay.db.sock (SB0009)
  stop that process, or run `sickbay serve` there instead of it: that answers others
  more: sickbay explain SB0009
"
    );
    let report = scene.run("doctor");
    assert_eq!(report.code, 3);
    assert!(report.out.contains("ok   owner       process 4242\nBAD  socket "), "{}", report.out);
}

#[test]
fn a_shell_script_handles_messages() {
    let scene = with_script();
    scene.ok("push sh early");
    let serve = scene.start("serve");
    assert!(serve.said.contains("pay.sh for each message, 2 at a time\n"), "{}", serve.said);
    for body in ["good", "bad", "later", "kill", "flood", "slow"] {
        scene.ok(&format!("push sh {body} --type {body}"));
    }
    assert_eq!(scene.run_fed(&["push", "sh"], &[0, 255, 10, 0]).code, 0);
    let stats = until_settled(&scene, "sh", 8);
    assert_eq!((figure(&stats, "sh", "completed"), figure(&stats, "sh", "dead")), (3, 5));
    let rows = scene.json("quarantine list");
    for (message_type, reason, tries, error) in [
        ("bad", "ValidationFailure", 1, "is bad"),
        ("later", "", 2, "the bank is away"),
        ("kill", "HandlerException", 2, "signal 9"),
        ("flood", "ValidationFailure", 1, ""),
        ("slow", "TimeoutExceeded", 1, "time budget of 2s"),
    ] {
        let rows = rows["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["type"] == message_type).unwrap();
        assert!(reason.is_empty() || row["reason"] == reason, "{row}");
        assert!(row["counters"]["deliveries"] == tries, "{row}");
        assert!(row["error"].as_str().unwrap().contains(error), "{row}");
    }
    serve.signal("INT");
    assert_eq!(serve.ended(), Some(0));
}

#[test]
fn an_http_endpoint_in_python_handles_messages() {
    let scene = Scene::new();
    scene.write("web.py", WEB);
    let mut python = Command::new("python3");
    python.arg(scene.path("web.py")).stdout(Stdio::piped());
    let mut python = Killed(python.spawn().unwrap());
    let mut port = String::new();
    BufReader::new(python.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    scene.write(
        "sickbay.toml",
        &format!(
            "[queues.web]\nretry = {{ attempts = 2, cooldown = \"1ms\" }}\n\
             handler = {{ http = \"http://127.0.0.1:{}/orders\" }}\n",
            port.trim()
        ),
    );
    let serve = scene.start("serve");
    for body in ["good", "bad", "later"] {
        scene.ok(&format!("push web {body} --type {body}"));
    }
    assert_eq!(scene.run_fed(&["push", "web"], &(0..=255).collect::<Vec<u8>>()).code, 0);
    let stats = until_settled(&scene, "web", 4);
    assert_eq!((figure(&stats, "web", "completed"), figure(&stats, "web", "dead")), (2, 2));
    let bad = scene.json("quarantine list --type bad");
    assert_eq!((&bad["rows"][0]["kind"], &bad["rows"][0]["error"]), (&"poison".into(), &"no: bad".into()));
    let later = scene.json("quarantine list --type later");
    assert_eq!(later["rows"][0]["counters"]["deliveries"], 2);
    serve.signal("TERM");
    assert_eq!(serve.ended(), Some(0));
}

#[test]
fn handlers_run_beside_the_owner() {
    let scene = with_script();
    let serve = scene.start("serve --no-work");
    scene.ok("push sh good");
    let mut work = scene.start("work sh");
    assert!(work.said.contains("on a store of another process"), "{}", work.said);
    until_settled(&scene, "sh", 1);
    work.signal("TERM");
    work.hear("stopped");
    assert_eq!(work.ended(), Some(0));
    assert_eq!(scene.run("work plain").code, 4);
    drop(serve);
    // Alone it owns the store, and answers others.
    let work = scene.start("work");
    scene.ok("push sh good");
    until_settled(&scene, "sh", 2);
    drop(work);
}

#[test]
fn a_changed_configuration_is_taken_over_and_a_broken_one_is_not() {
    let scene = Scene::new();
    scene.script("pay.sh", PAY);
    let text = |queues: &str| format!("[defaults]\nretry = {{ attempts = 1 }}\n{queues}");
    scene.write("sickbay.toml", &text("[queues.a]\n"));
    let mut serve = scene.start("serve");
    scene.ok("push a good");
    scene.write("sickbay.toml", &text("[queues.a]\nhandler = { exec = [\"./pay.sh\"] }\n[queues.b]\n"));
    serve.signal("HUP");
    serve.hear("the changed configuration is in force");
    until_settled(&scene, "a", 1);
    scene.ok("push b x");
    scene.write("sickbay.toml", "[queues.a]\nlaese = \"1s\"\n");
    serve.signal("HUP");
    serve.hear("the old one stays in force");
    scene.ok("push a good --store sickbay.db");
    let settled = |stats: &Value| figure(stats, "a", "completed") == 2;
    scene.until("stats --store sickbay.db", settled);
    serve.signal("TERM");
    assert_eq!(serve.ended(), Some(0));
}

#[test]
fn a_port_of_this_machine_is_served_when_asked_for() {
    let scene = with_script();
    let serve = scene.start("serve --no-work --listen 127.0.0.1:0");
    let line = serve.said.lines().find(|line| line.starts_with("and at ")).unwrap();
    let address = line.trim_start_matches("and at ").to_owned();
    let elsewhere = Scene::new();
    elsewhere.ok(&format!("push plain x --server {address}"));
    let stats = elsewhere.json(&format!("stats --server {address}"));
    assert_eq!(figure(&stats, "plain", "pending"), 1);
    drop(serve);
    assert_eq!(elsewhere.run(&format!("stats --server {address}")).code, 6);
    let ran = scene.run("serve --listen 0.0.0.0:0");
    assert!(ran.code == 2 && ran.err.contains("SB0030"), "{}", ran.err);
}

#[test]
fn what_was_discarded_longer_ago_than_the_retention_is_removed_and_nothing_else() {
    let scene = Scene::new();
    let config = |retention: &str| format!("[queues.orders]\nretention = \"{retention}\"\n[queues.mails]\n");
    scene.write("sickbay.toml", &config("90d"));
    for queue in ["orders", "mails"] {
        for why in ["discarded", "kept"] {
            let id = scene.ok(&format!("push {queue} {why}"));
            scene.run_fed(&["message", "dead-letter", id.trim(), "--why", why], b"");
        }
        scene.ok(&format!("quarantine discard --queue {queue} --error discarded --yes"));
    }
    let counts = |value: &Value| {
        let of = |queue: usize, name: &str| value["queues"][queue]["stats"][name].as_u64().unwrap();
        [0, 1].map(|queue| (of(queue, "dead"), of(queue, "discarded"), of(queue, "removed")))
    };
    let mut serve = scene.start("serve");
    assert_eq!(counts(&scene.json("stats")), [(1, 1, 0), (1, 1, 0)], "90 days are not over");
    // The changed retention is enforced as soon as it is in force.
    scene.write("sickbay.toml", &config("1ms"));
    serve.signal("HUP");
    serve.hear("orders: 1 discarded message removed for good, discarded 1ms ago or longer");
    assert_eq!(counts(&scene.json("stats")), [(1, 1, 0), (1, 0, 1)], "mails, then orders");
    assert_eq!(
        scene.ok("quarantine list --queue orders").lines().count(),
        2,
        "what waits in quarantine stays"
    );
    serve.signal("TERM");
    assert_eq!(serve.ended(), Some(0));
}
