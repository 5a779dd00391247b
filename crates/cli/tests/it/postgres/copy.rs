//! `sickbay copy` to a database and back.

use super::scene::{Base, password, server};

#[test]
fn a_store_moves_to_a_database_and_back() {
    let base = Base::bare();
    let scene = &base.scene;
    for line in [
        "queue define orders --attempts 2 --cooldown 1h",
        "push orders one --key k1 --type OrderPaid",
        "push orders two --stream s",
        "push orders three --stream s --delay 1h",
        "message dead-letter agfj --why broken",
    ] {
        scene.ok(line);
    }
    let ran = scene.run(&format!("copy --from sickbay.db --to {} --json", base.address()));
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(!ran.out.contains(&password()), "{}", ran.out);
    let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&answer["records"]["waiting"], &answer["verified"]), (&2.into(), &true.into()));
    for line in
        ["stats --json", "quarantine list --json", "message show agfj --json", "stream list orders --json"]
    {
        assert_eq!(scene.ok(line), base.ok(line), "{line}");
    }
    let again = scene.run(&format!("copy --from sickbay.db --to {}", base.address()));
    assert_eq!(again.code, 5, "{}", again.err);
    assert!(again.err.contains("complete copy of this source already"), "{}", again.err);
    scene.ok(&format!("copy --from {} --to back.db", base.address()));
    assert_eq!(scene.ok("stats --json"), scene.ok("stats --json --store back.db"));
    assert_eq!(base.ok("push orders four"), scene.ok("push orders four --store back.db"), "the next number");
}

#[test]
fn a_database_that_somebody_works_on_is_not_copied() {
    let base = Base::with_queue();
    base.scene.write("sickbay.toml", "[queues.orders]\nhandler = { exec = [\"cat\"] }\n");
    let work = base.start("work --config sickbay.toml --name host/1");
    base.until("worker list", |list| !list["processes"].as_array().unwrap_or(&Vec::new()).is_empty());
    let ran = base.scene.run(&format!("copy --from {} --to moved.db", base.address()));
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(ran.err.contains("SB0072") && ran.err.contains("host/1"), "{}", ran.err);
    work.signal("TERM");
    assert_eq!(work.ended(), Some(0));
    base.scene.ok(&format!("copy --from {} --to moved.db", base.address()));
}

#[test]
fn wrong_addresses_are_refused_without_their_passwords() {
    let base = Base::bare();
    base.scene.ok("queue define orders");
    let (_, host) = server().rsplit_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    for (to, code) in [
        (format!("postgres://nobody:wrong-password@{host}"), 6),
        ("postgres://nobody:wrong-password@127.0.0.1:1/none".to_owned(), 6),
        (format!("postgres://nobody:wrong-password@{host}?connections=none"), 2),
    ] {
        let ran = base.scene.run(&format!("copy --from sickbay.db --to {to}"));
        assert_eq!(ran.code, code, "{}", ran.err);
        assert!(!ran.err.contains("wrong-password"), "{}", ran.err);
    }
    let ran = base.scene.run(&format!("copy --from {} --to moved.db", base.address()));
    assert_eq!(ran.code, 6, "{}", ran.err);
    assert!(ran.err.contains("SB0063") && !base.scene.path("moved.db").exists(), "{}", ran.err);
}
