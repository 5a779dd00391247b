//! `sickbay doctor` on a database.

use super::scene::Base;

fn findings(base: &Base, what: &str) -> Vec<serde_json::Value> {
    let ran = base.run("doctor --json");
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    findings.filter(|finding| finding["what"] == what).cloned().collect()
}

#[test]
fn a_database_is_examined() {
    let base = Base::new();
    let ran = base.run("doctor");
    for words in ["PostgreSQL ", "schema ", "all are there", "autovacuum on", "dead rows", "differ by "] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    // The server of the tests need not survive the machine, and that is found out.
    assert!(ran.out.contains("BAD  settings    fsync is off\n"), "{}", ran.out);
    assert_eq!(ran.code, 3);
}

#[test]
fn a_missing_index_and_a_missing_schema_are_found() {
    let base = Base::bare();
    let version = findings(&base, "version");
    assert_eq!((&version[0]["ok"], &version[0]["advice"]), (&false.into(), &"run `sickbay migrate`".into()));
    base.ok("migrate");
    assert_eq!(findings(&base, "indexes")[0]["ok"], true);
    base.sql("DROP INDEX sickbay.waiting_stream").unwrap();
    let indexes = findings(&base, "indexes");
    assert_eq!(indexes[0]["ok"], false);
    assert!(indexes[0]["detail"].as_str().unwrap().contains("waiting_stream"));
    let gone = base.scene.run("doctor --store postgres://postgres:secret-1@127.0.0.1:1/x");
    assert_eq!(gone.code, 3, "{}", gone.err);
    assert!(gone.out.contains("SB0061") && !gone.out.contains("secret-1"), "{}", gone.out);
}

#[test]
fn whoever_has_the_store_open_is_listed_with_what_it_holds() {
    let base = Base::with_queue();
    base.scene.write(
        "sickbay.toml",
        "[queues.orders]\nhandler = { exec = [\"sleep\", \"600\"] }\ntime_budget = \"1h\"\n",
    );
    let work = base.start("work --config sickbay.toml --name sleeper");
    base.ok("push orders x");
    base.until("worker list", |seen| seen["processes"][0]["holds"] == 1);
    let instances = findings(&base, "instance");
    let detail = instances[0]["detail"].as_str().unwrap();
    assert!(detail.starts_with("sleeper, process ") && detail.ends_with(", holds 1"), "{detail}");
    drop(work);
}
