//! The commands that people use every day.

use super::scene::{Base, password, server};

#[test]
fn every_command_works_on_a_database() {
    let base = Base::with_queue();
    let id = base.ok("push orders hello --type OrderPaid --key k1 --header tenant=acme --priority 7");
    assert_eq!(id, "n0z55zmxkvp7\n");
    assert_eq!(base.json("push orders hello --key k1")["pushed"][0]["duplicate"], true);
    let shown = base.ok("message show n0z");
    assert!(shown.contains("  type         OrderPaid\n") && shown.ends_with("    hello\n"), "{shown}");
    assert_eq!(base.ok("message dead-letter n0z"), "n0z55zmx is in quarantine\n");
    assert!(base.ok("quarantine list").contains("n0z55zmx"));
    assert!(base.ok("quarantine show n0z").contains("OrderPaid"));
    base.ok("quarantine discard n0z --yes");
    base.ok("quarantine restore n0z --yes");
    base.ok("quarantine replay n0z --yes");
    assert_eq!(base.json("message show n0z")["counters"]["replays"], 1);
    base.ok("push orders 1 --stream s");
    base.ok("push orders 2 --stream s --delay 1h");
    assert!(base.ok("stream list orders").contains("\ns  "), "{}", base.ok("stream list orders"));
    assert!(base.ok("stream show orders s").contains("pending"));
    base.ok("queue pause orders");
    let stats = base.json("stats");
    let stats = &stats["queues"][0]["stats"];
    assert_eq!(
        (&stats["pending"], &stats["scheduled"], &stats["paused"]),
        (&2.into(), &1.into(), &true.into())
    );
    base.ok("queue resume orders");
    assert!(base.ok("queue show orders").contains("tried 2 times"));
    assert!(base.ok("policy show orders").contains("2"));
    assert_eq!(base.ok("message cancel n0z"), "n0z55zmx is removed\n");
    assert_eq!(base.run("push ordrs x").code, 4);
    assert_eq!(base.json("worker list")["processes"], serde_json::json!([]), "commands are no workers");
}

#[test]
fn any_bytes_come_out_as_they_went_in() {
    let base = Base::with_queue();
    let bytes: Vec<u8> = (0..=255).collect();
    let address = base.address();
    assert_eq!(base.scene.run_fed(&["push", "orders", "--store", &address], &bytes).code, 0);
    let view = base.json("message show n0z");
    let base64 = view["payload_base64"].as_str().unwrap();
    assert!(base64.starts_with("AAECAwQF") && base64.ends_with("+fr7/P3+/w=="), "{base64}");
}

#[test]
fn the_store_of_the_configuration_and_of_the_environment_can_be_a_database() {
    let base = Base::new();
    for (text, line) in [
        (format!("[store]\nurl = \"{}\"\n", base.address()), "stats"),
        (format!("store = \"{}\"\n", base.address()), "stats --config sickbay.toml"),
    ] {
        base.scene.write("sickbay.toml", &format!("{text}[queues.orders]\n"));
        assert_eq!(base.scene.run("push orders x").code, 0);
        assert!(base.scene.ok(line).contains("\norders "));
        let printed = base.scene.ok("check --print");
        assert!(printed.contains(":***@") && !printed.contains(&password()), "{printed}");
    }
    let ran = base.scene.run("stats --help");
    assert!(!ran.out.contains(&password()));
}

#[test]
fn what_is_wrong_with_the_way_to_the_database_is_said_without_the_password() {
    let base = Base::bare();
    let missing = base.run("stats");
    assert_eq!(missing.code, 6, "{}", missing.err);
    assert!(missing.err.contains("is missing") && missing.err.contains("(SB0063)"), "{}", missing.err);
    assert!(missing.err.contains("run `sickbay migrate`"), "{}", missing.err);
    let (_, host) = server().rsplit_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let cases = [
        ("postgres://postgres:wr0ng-one@127.0.0.1:1/postgres".to_owned(), 6, "SB0061"),
        (format!("postgres://postgres:wr0ng-one@{host}"), 6, "SB0062"),
        ("postgres://postgres:wr0ng-one@h/db?nonsense=1".to_owned(), 2, "SB0067"),
    ];
    for (address, exit, code) in cases {
        let ran = base.scene.run(&format!("stats --store {address}"));
        assert_eq!(ran.code, exit, "{address}: {}", ran.err);
        assert!(
            ran.err.contains(&format!("({code})")) && !ran.err.contains("wr0ng"),
            "{address}: {}",
            ran.err
        );
        assert!(ran.err.contains("postgres://postgres:***@"), "{}", ran.err);
    }
    let wrong = base.scene.run("stats --store postgres://h/db?connections=none");
    assert_eq!(wrong.code, 2, "{}", wrong.err);
}

#[test]
fn a_newer_schema_is_left_alone() {
    let base = Base::new();
    base.sql("UPDATE sickbay.meta SET value = 99 WHERE name = 'version'").unwrap();
    for line in ["stats", "migrate", "migrate --dry-run"] {
        let ran = base.run(line);
        assert_eq!(ran.code, 6, "{line}: {}", ran.err);
        assert!(ran.err.contains("newer") && ran.err.contains("(SB0008)"), "{line}: {}", ran.err);
    }
}

#[test]
fn functions_of_an_earlier_version_are_named_and_renewed_by_migrate() {
    let base = Base::new();
    base.sql("UPDATE sickbay.meta SET value = 1 WHERE name = 'functions'").unwrap();
    let stats = base.run("stats");
    assert!(stats.code != 0 && stats.err.contains("(SB0063)"), "{}", stats.err);
    let doctor = base.run("doctor");
    assert!(doctor.code != 0 && doctor.out.contains("functions of schema"), "{}{}", doctor.out, doctor.err);
    assert_eq!(base.run("migrate").code, 0);
    let stats = base.run("stats");
    assert_eq!(stats.code, 0, "{}", stats.err);
}

#[test]
fn many_instances_work_on_one_database_and_are_seen() {
    let base = Base::new();
    base.scene.write("sickbay.toml", "[queues.orders]\nhandler = { exec = [\"cat\"] }\nconcurrency = 2\n");
    let one = base.start("work --config sickbay.toml --name one");
    let two = base.start("serve --config sickbay.toml --name two");
    let lines: String = (0..40).map(|n| format!("{{\"payload\":\"{n}\"}}\n")).collect();
    let address = base.address();
    let ran = base.scene.run_fed(&["push", "orders", "--ndjson", "--store", &address], lines.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    base.until("stats", |stats| stats["queues"][0]["stats"]["completed"] == 40);
    let seen = base.json("worker list");
    let names: Vec<_> =
        seen["processes"].as_array().unwrap().iter().map(|process| &process["name"]).collect();
    assert!(names.contains(&&"one".into()) && names.contains(&&"two".into()), "{seen}");
    assert_eq!(seen["processes"][0]["queues"], serde_json::json!(["orders"]));
    let listed = base.ok("worker list");
    assert!(
        listed.starts_with("PROCESS ") && listed.contains("  one ") && listed.contains("/orders\n"),
        "{listed}"
    );
    for staying in [one, two] {
        staying.signal("TERM");
        assert_eq!(staying.ended(), Some(0));
    }
}

#[test]
fn what_a_killed_instance_held_is_suspect_when_it_comes_back_under_its_name() {
    let base = Base::with_queue();
    let config =
        "[queues.orders]\nhandler = { exec = [\"sleep\", \"600\"] }\ntime_budget = \"1h\"\nlease = \"1h\"\n";
    base.scene.write("sickbay.toml", config);
    let work = base.start("work --config sickbay.toml --name one");
    base.ok("push orders x");
    base.until("worker list", |seen| seen["processes"][0]["holds"] == 1);
    work.signal("KILL");
    assert_eq!(work.ended(), None);
    assert_eq!(base.json("message show n0z")["status"], "active", "its lease has not run out");
    let _again = base.start("serve --no-work --config sickbay.toml --name one");
    let view = base.json("message show n0z");
    assert_eq!((&view["status"], &view["suspect"]), (&"pending".into(), &true.into()));
    assert_eq!(view["counters"]["crashes"], 1);
}

#[test]
fn a_database_is_served_over_http_when_somebody_asks_for_it() {
    let base = Base::with_queue();
    let serve = base.start("serve --no-work --listen 127.0.0.1:0");
    let line = serve.said.lines().find(|line| line.contains("http://")).unwrap();
    let url = line.split_whitespace().last().unwrap();
    assert_eq!(base.scene.ok(&format!("push orders x --server {url}")), "n0z55zmxkvp7\n");
    assert_eq!(base.json("stats")["queues"][0]["stats"]["pending"], 1);
    assert!(base.scene.ok(&format!("worker list --server {url}")).starts_with("PROCESS "));
    assert!(!serve.said.contains(&password()), "{}", serve.said);
}
