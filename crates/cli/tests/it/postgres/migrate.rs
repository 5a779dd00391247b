//! `sickbay migrate`, and what the role of the workers may do.

use super::scene::{Base, server};

#[test]
fn migrating_makes_the_schema_once() {
    let base = Base::bare();
    assert_eq!(base.ok("migrate"), format!("schema {} is made, version 1\n", base.schema));
    base.ok("queue define orders");
    base.ok("push orders x");
    assert!(base.ok("migrate").contains("has version 1 already"));
    let answer = base.json("migrate");
    assert_eq!((&answer["from"], &answer["to"]), (&1.into(), &1.into()));
    assert_eq!(base.json("stats")["queues"][0]["stats"]["pending"], 1);
}

#[test]
fn a_dry_run_prints_statements_that_make_the_schema() {
    let base = Base::bare();
    let sql = base.ok("migrate --dry-run --role somebody");
    assert!(sql.starts_with("BEGIN;\n") && sql.ends_with("COMMIT;\n"));
    assert!(sql.contains("GRANT USAGE ON SCHEMA"));
    assert_eq!(base.run("stats").code, 6, "nothing was made");
    let sql = base.ok("migrate --dry-run");
    base.sql(&sql).unwrap();
    base.ok("queue define orders");
    base.ok("push orders x");
}

#[test]
fn a_file_is_migrated_by_opening_it() {
    let base = Base::bare();
    let ran = base.scene.run("migrate --store orders.db");
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    assert!(ran.err.contains("opening it migrates it"), "{}", ran.err);
    assert_eq!(base.scene.run("migrate --store orders.db --role worker").code, 2);
}

#[test]
fn the_role_of_the_workers_can_change_neither_the_schema_nor_what_was_recorded() {
    let base = Base::bare();
    let role = format!("{}_worker", base.schema);
    assert_eq!(base.run(&format!("migrate --role {role}")).code, 4, "there is no such role");
    base.sql(&format!("CREATE ROLE {role} LOGIN PASSWORD 'of-the-workers'")).unwrap();
    base.ok(&format!("migrate --role {role}"));
    let server = server();
    let (_, host) = server.rsplit_once('@').unwrap();
    let plain = format!("postgres://{role}:of-the-workers@{host}");
    let address = format!("{plain}?schema={}", base.schema);
    let ok = |line: &str| base.scene.ok(&format!("{line} --store {address}"));
    ok("queue define orders --attempts 1");
    // It can do a worker's work, failures, quarantine, replays and purges included.
    base.scene.write(
        "sickbay.toml",
        "[queues.orders]\nhandler = { exec = [\"sh\", \"-c\", \"grep -q good || exit 1\"] }\nretry = { attempts = 1 }\n",
    );
    let work = base.scene.start(&format!("work --config sickbay.toml --store {address}"));
    ok("push orders good");
    ok("push orders bad");
    let stats = format!("stats --store {address}");
    base.scene.until(&stats, |stats| {
        let stats = &stats["queues"][0]["stats"];
        stats["completed"] == 1 && stats["dead"] == 1
    });
    work.signal("TERM");
    assert_eq!(work.ended(), Some(0));
    let refused = |statement: &str| {
        let answer = base.sql_at(&plain, statement);
        assert!(
            answer.as_ref().is_err_and(|error| error.contains("must be owner") || error.contains("denied")),
            "{statement}: {answer:?}"
        );
    };
    refused("ALTER TABLE sickbay.waiting ADD COLUMN more text");
    refused("DROP TABLE sickbay.attempt");
    refused("CREATE TABLE sickbay.mine (x integer)");
    refused("CREATE OR REPLACE FUNCTION sickbay.forget(p_id bigint) RETURNS void LANGUAGE sql AS 'SELECT 1'");
    refused("UPDATE sickbay.attempt SET worker = 'somebody else'");
    refused("DELETE FROM sickbay.attempt");
    refused("TRUNCATE sickbay.attempt");
    let forget = base.sql_at(&plain, "SELECT sickbay.forget(id) FROM sickbay.dead");
    assert!(forget.as_ref().is_err_and(|error| error.contains("is in quarantine")), "{forget:?}");
    assert_eq!(base.sql("SELECT count(*) FROM sickbay.attempt").unwrap(), "1");
    ok("quarantine discard --all --yes");
    ok("quarantine restore --all --yes");
    ok("quarantine replay --all --yes");
    ok("message cancel agfj");
    assert_eq!(base.sql("SELECT count(*) FROM sickbay.attempt").unwrap(), "0", "gone with its message");
    base.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).unwrap();
}
