//! Commands that need no store, or only look at it.

use serde_json::{Value, json};

use super::scene::Scene;

#[test]
fn errors_are_signed_one_per_line_and_grouped() {
    let scene = Scene::new();
    let lines = b"order 17 not found\ntimeout after 30s\norder 9981 not found\n";
    let ran = scene.run_fed(&["signature", "--json"], lines);
    let list: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(list.len(), 3);
    assert_eq!(list[0], list[2]);
    assert_ne!(list[0]["signature"], list[1]["signature"]);
    assert_eq!(list[0]["text"], "order <num> not found");
    let signature = list[0]["signature"].as_str().unwrap();
    let ran = scene.run_fed(&["signature"], lines);
    assert!(ran.out.starts_with(&format!("{signature}  order <num> not found\n")), "{}", ran.out);
    let ran = scene.run_fed(&["signature", "--group"], lines);
    let expected = format!("SIGNATURE      COUNT  ERROR\n{signature}      2  order <num> not found\n");
    assert!(ran.out.starts_with(&expected), "{}", ran.out);
    scene.write("errors.txt", "a\r\n\nb");
    assert_eq!(scene.json("signature errors.txt").as_array().unwrap().len(), 3);
    assert_eq!(scene.run("signature missing.txt").code, 4);
}

#[test]
fn what_an_error_would_do_is_told_step_by_step() {
    let scene = Scene::with_queue();
    let ran = scene.run_fed(&["policy", "test", "orders", "connection refused"], b"");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.out.starts_with("kind    transient\nreason  TransportUnavailable\nrule    preset "),
        "{}",
        ran.out
    );
    assert!(
        ran.out.ends_with("attempt 1: again after 1h\nattempt 2: quarantine (MaxDeliveryCountExceeded)\n"),
        "{}",
        ran.out
    );
    let verdict = scene.json("policy test orders boom --exit-code 65");
    assert_eq!(
        (&verdict["kind"], &verdict["steps"][0]["decision"]),
        (&"poison".into(), &"quarantine".into())
    );
    assert_eq!(scene.run("policy test nowhere boom").code, 4);
    assert!(scene.ok("policy show orders").starts_with("orders: tried 2 times, 1h apart\n{\n"));
    assert_eq!(scene.json("policy show orders")["retry"]["attempts"], 2);
}

#[test]
fn a_policy_of_the_configuration_is_tested_before_there_is_a_store() {
    let scene = Scene::new();
    scene.write(
        "sickbay.toml",
        "[[queues.a.classification]]\nname = \"mine\"\ntext = \"boom\"\nkind = \"poison\"\n",
    );
    let ran = scene.run("policy test a boom");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("rule    mine of the queue\n"), "{}", ran.out);
    assert!(ran.err.contains("this is what the configuration says"), "{}", ran.err);
    assert!(!scene.path("sickbay.db").exists());
}

#[test]
fn codes_are_explained() {
    let scene = Scene::new();
    let page = scene.ok("explain sb7");
    assert!(page.starts_with("# SB0007: ") && page.contains("## What to do"), "{page}");
    assert!(scene.ok("explain").starts_with("SB0001  "));
    assert_eq!(scene.json("explain SB0009")["code"], "SB0009");
    let ran = scene.run("explain SB9999");
    assert_eq!(ran.code, 4);
    assert_eq!(
        ran.err,
        "error: there is no error code \"SB9999\"\n  list all codes with `sickbay explain`\n"
    );
    assert!(scene.ok("help exit-codes").contains("\n6  the store cannot be reached"));
    assert_eq!(
        scene.json("exit-codes")[3],
        json!({"code": 3, "meaning": "found problems (check, doctor, copy)"})
    );
}

#[test]
fn a_configuration_is_written_checked_and_used() {
    let scene = Scene::new();
    let ran = scene.run("check");
    assert_eq!(ran.code, 4);
    assert_eq!(ran.err, "error: there is no configuration sickbay.toml\n  write one with `sickbay init`\n");
    assert!(scene.ok("init").starts_with("sickbay.toml is written. Next:\n  sickbay check\n"));
    assert_eq!(scene.run("init").code, 5);
    scene.ok("init --force");
    assert_eq!(scene.ok("check"), "sickbay.toml is right: 1 queue, 1 handler\n");
    assert!(scene.ok("check --print").contains("[queues.orders]"));
    // The queue of the configuration is there for the first push already.
    scene.ok("push orders x");
    assert_eq!(scene.json("stats")["queues"][0]["name"], "orders");
}

#[test]
fn a_broken_configuration_is_a_problem_found() {
    let scene = Scene::new();
    scene.write("sickbay.toml", "[queues.a]\nlaese = \"10s\"\n");
    let ran = scene.run("check");
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    assert!(ran.err.contains("sickbay.toml:2:1") && ran.err.contains("did you mean `lease`?"), "{}", ran.err);
    let ran = scene.run("check --json");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &document["problems"][0]["line"]), (3, &2.into()));
    // Other commands do not guess what was meant.
    assert_eq!(scene.run("stats").code, 2);
    assert_eq!(scene.run("stats --store x.db").code, 6);
}

#[test]
fn the_doctor_finds_what_is_wrong() {
    let scene = Scene::with_queue();
    let report = scene.ok("doctor");
    for what in
        ["program", "config      none", "file", "version     schema ", "integrity   ok", "owner       nobody"]
    {
        assert!(report.contains(what), "{what}: {report}");
    }
    assert_eq!(scene.json("doctor --full")["store"], "sickbay.db");
    let ran = scene.run("doctor --store nowhere.db");
    assert_eq!(ran.code, 3);
    assert!(ran.out.contains("BAD  file        nowhere.db is not there"), "{}", ran.out);
    scene.write("broken.db", &"nonsense ".repeat(1000));
    let ran = scene.run("doctor --store broken.db");
    assert_eq!(ran.code, 3);
    assert!(ran.out.contains("BAD  integrity   it cannot be read: "), "{}", ran.out);
}

#[test]
fn completions_and_manual_pages_are_made() {
    let scene = Scene::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(scene.ok(&format!("completions {shell}")).contains("quarantine"), "{shell}");
    }
    assert!(scene.ok("man").contains(".TH sickbay 1"));
    scene.ok("man pages");
    let page = std::fs::read_to_string(scene.path("pages/sickbay-quarantine-replay.1")).unwrap();
    assert!(page.contains("\\-\\-yes"), "{page}");
    assert!(!scene.path("pages/sickbay-demo-worker.1").exists());
}

#[test]
fn a_wrong_command_is_answered_with_a_suggestion() {
    let scene = Scene::new();
    let ran = scene.run("quarntine list");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("a similar subcommand exists: 'quarantine'"), "{}", ran.err);
    let ran = scene.run("quarantine replay --alll");
    assert!(ran.code == 2 && ran.err.contains("'--all'"), "{}", ran.err);
    assert_eq!(scene.run("push").code, 2);
    assert_eq!(scene.run("push a --delay 3parsecs x").code, 2);
    assert_eq!(scene.run("stats --watch --json").code, 2);
}

#[test]
fn colours_are_for_terminals_or_on_demand() {
    let scene = Scene::with_queue();
    assert!(!scene.ok("queue list").contains('\u{1b}'));
    assert!(scene.ok("queue list --color always").starts_with("\u{1b}[1mQUEUE"));
    assert!(scene.run("queue show x --color always").err.starts_with("\u{1b}[1;31merror\u{1b}[0m: "));
}
