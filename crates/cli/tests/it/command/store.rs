//! Commands on queues and messages.

use super::scene::Scene;

#[test]
fn a_pushed_message_is_there_when_the_command_has_ended() {
    let scene = Scene::with_queue();
    let id = scene.ok("push orders hello --type OrderPaid --key k1 --header tenant=acme --priority 7");
    assert_eq!(id, "n0z55zmxkvp7\n");
    let shown = scene.ok("message show n0z");
    assert_eq!(
        scene.masked(&shown),
        "\
n0z55zmxkvp7 pending
  queue        orders
  type         OrderPaid
  key          k1
  priority     7
  pushed       <time>
  due          <time>
  counted      0 deliveries, 0 failures, 0 crashes, 0 replays
  header       tenant: acme
  payload (5 bytes)
    hello
"
    );
    let view = scene.json("message show n0z55zmx");
    assert_eq!((&view["payload"], &view["status"]), (&"hello".into(), &"pending".into()));
}

#[test]
fn the_same_key_is_stored_once() {
    let scene = Scene::with_queue();
    let first = scene.ok("push orders hello --key k1");
    let second = scene.run("push orders hello --key k1");
    assert_eq!((second.code, second.out), (0, first));
    assert_eq!(second.err, "its key is known already: nothing was stored\n");
    assert_eq!(scene.json("push orders hello --key k1")["pushed"][0]["duplicate"], true);
}

#[test]
fn a_payload_comes_from_stdin_or_a_file_byte_for_byte() {
    let scene = Scene::with_queue();
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(scene.run_fed(&["push", "orders"], &bytes).code, 0);
    std::fs::write(scene.path("body"), &bytes).unwrap();
    scene.ok("push orders --file body");
    for id in ["n0z55zmx", "agfjjzte"] {
        let view = scene.json(&format!("message show {id}"));
        let base64 = view["payload_base64"].as_str().unwrap();
        assert!(base64.starts_with("AAECAwQF") && base64.ends_with("+fr7/P3+/w=="), "{base64}");
    }
}

#[test]
fn what_a_payload_says_is_not_said_to_the_terminal() {
    let scene = Scene::with_queue();
    scene.run_fed(&["push", "orders", "--header", "x=\u{1b}[2J\u{202e}"], "\u{202e}two\nlines".as_bytes());
    let shown = scene.ok("message show n0z");
    assert!(shown.contains("  header       x: \\u{1b}[2J\\u{202e}\n"), "{shown}");
    assert!(shown.ends_with("    \\u{202e}two\n    lines\n"), "{shown}");
}

#[test]
fn lines_are_pushed_up_to_the_bad_one_and_can_be_gone_on_with() {
    let scene = Scene::with_queue();
    let mut lines: String = (0..1500).map(|n| format!("{{\"payload\":\"{n}\"}}\n")).collect();
    lines.push_str("nonsense\n{\"payload\":\"last\"}\n");
    let ran = scene.run_fed(&["push", "orders", "--ndjson"], lines.as_bytes());
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(
        ran.err.starts_with("error: line 1501: this is no JSON object (column 2: expected ident) (SB0026)\n"),
        "{}",
        ran.err
    );
    assert!(
        ran.err.contains("\n  1,500 lines stored; correct line 1501 and go on with --skip 1500\n"),
        "{}",
        ran.err
    );
    assert_eq!(scene.json("stats")["queues"][0]["stats"]["pushed"], 1500);
    let fixed = lines.replace("nonsense", "{\"payload\":\"fixed\"}");
    let ran = scene.run_fed(&["push", "orders", "--ndjson", "--skip", "1500"], fixed.as_bytes());
    assert_eq!((ran.code, ran.out.as_str()), (0, "2 messages pushed\n"), "{}", ran.err);
    assert_eq!(scene.json("stats")["queues"][0]["stats"]["pushed"], 1502);
}

#[test]
fn queues_are_listed_shown_defined_paused_and_resumed() {
    let scene = Scene::new();
    assert_eq!(
        scene.ok("queue define orders --attempts 2 --cooldown 1h"),
        "orders is created: tried 2 times, 1h apart\n"
    );
    assert_eq!(
        scene.ok("queue define orders --attempts 5 --backoff 10s"),
        "orders is changed: tried 5 times, 10s apart at first, doubling up to 1h\n"
    );
    scene.ok("push orders x --delay 1h");
    assert!(scene.ok("queue pause orders").starts_with("orders is paused: "));
    assert_eq!(
        scene.ok("queue list"),
        "\
QUEUE   PENDING  SCHEDULED  RETRY  ACTIVE  DEAD  COMPLETED  PUSHED  STATE
orders        0          1      0       0     0          0       1  paused
"
    );
    assert_eq!(scene.ok("queue resume orders"), "orders goes on\n");
    scene.ok("queue pause orders --type A");
    assert_eq!(scene.ok("stats"), scene.ok("queue list"));
    assert!(scene.ok("queue list").ends_with("  A paused\n"), "{}", scene.ok("queue list"));
    let shown = scene.ok("queue show orders");
    assert!(shown.starts_with("orders\n  retry              tried 5 times"), "{shown}");
    assert_eq!(scene.json("queue show orders")["stats"]["scheduled"], 1);
}

#[test]
fn a_message_is_retried_cancelled_and_set_aside_by_hand() {
    let scene = Scene::with_queue();
    for _ in 0..3 {
        scene.ok("push orders x --delay 1h");
    }
    assert_eq!(scene.ok("message retry n0z55zmx"), "n0z55zmx is due now\n");
    assert_eq!(scene.json("message show n0z")["status"], "pending");
    assert_eq!(scene.ok("message cancel agfj"), "agfjjzte is removed\n");
    let dead = scene.run_fed(&["message", "dead-letter", "zgqf", "--why", "looks odd"], b"");
    assert_eq!((dead.code, dead.out.as_str()), (0, "zgqfqfhm is in quarantine\n"));
    assert!(scene.ok("quarantine list").contains("looks odd"));
    assert_eq!(scene.ok("message retry zgqf"), "zgqfqfhm is sent back to orders\n");
    assert_eq!(scene.json("message show zgqf")["counters"]["replays"], 1);
}

#[test]
fn what_is_not_there_is_not_found_and_says_what_to_do() {
    let scene = Scene::with_queue();
    let ran = scene.run("push ordrs x");
    assert_eq!((ran.code, ran.out.as_str()), (4, ""));
    assert_eq!(
        ran.err,
        "\
error: there is no queue \"ordrs\"; the nearest name is \"orders\" (SB0001)
  see the queues with `sickbay queue list`, or make one with `sickbay queue define NAME`
  more: sickbay explain SB0001
"
    );
    let ran = scene.run("message show zzz --json");
    assert_eq!(ran.code, 4);
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&document["error"]["code"], &document["error"]["exit"]), (&"SB0028".into(), &4.into()));
    assert_eq!(scene.run("message show i").code, 2);
    assert_eq!(scene.run("message cancel zzz").code, 4);
}

#[test]
fn a_mistyped_store_is_not_made() {
    let scene = Scene::new();
    for line in ["stats", "queue list", "push orders x", "quarantine list", "message show a"] {
        let ran = scene.run(&format!("{line} --store ordres.db"));
        assert_eq!(ran.code, 6, "{line}");
        assert!(
            ran.err.starts_with("error: there is no store ordres.db\n  name it with --store"),
            "{}",
            ran.err
        );
        assert!(!scene.path("ordres.db").exists());
    }
    let ran = scene.run("queue define a --store no/such/folder/x.db");
    assert_eq!(ran.code, 6);
    assert!(ran.err.contains("its folder does not exist"), "{}", ran.err);
}

#[test]
fn a_file_that_is_no_store_is_left_alone() {
    let scene = Scene::new();
    scene.write("notes.txt", "this is no database, whatever its name may say about it\n");
    let ran = scene.run("stats --store notes.txt");
    assert_eq!(ran.code, 6, "{}", ran.err);
    assert!(ran.err.contains("sickbay explain SB00"), "{}", ran.err);
}

#[test]
fn commands_at_the_same_time_wait_for_each_other() {
    let scene = Scene::with_queue();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..3 {
                    scene.ok("push orders x");
                }
            });
        }
    });
    assert_eq!(scene.json("stats")["queues"][0]["stats"]["pending"], 12);
}

#[test]
fn streams_are_listed_and_released() {
    let scene = Scene::with_queue();
    scene.ok("push orders 1 --stream s");
    scene.ok("push orders 2 --stream s");
    scene.ok("message dead-letter n0z");
    let listed = scene.ok("stream list orders");
    assert!(listed.contains("\ns       held ") && listed.contains("  n0z55zmx  "), "{listed}");
    assert_eq!(scene.ok("stream release orders s"), "s goes on without its head\n");
    let ran = scene.run("stream release orders s");
    assert_eq!((ran.code, ran.out.as_str()), (5, ""));
    assert!(ran.err.contains("is not blocked\n  see its state with"), "{}", ran.err);
}
