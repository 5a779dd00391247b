//! `sickbay copy` from file to file.

use super::scene::Scene;

/// A store with a little of everything.
fn filled() -> Scene {
    let scene = Scene::with_queue();
    for line in [
        "push orders one --key k1 --type OrderPaid",
        "push orders two --stream s",
        "push orders three --stream s --delay 1h",
        "message dead-letter agfj --why broken",
        "queue pause orders",
    ] {
        scene.ok(line);
    }
    scene
}

#[test]
fn a_copied_store_shows_the_same() {
    let scene = filled();
    let answer = scene.json("copy --from sickbay.db --to moved.db");
    assert_eq!((&answer["verified"], &answer["resumed"]), (&true.into(), &false.into()));
    assert_eq!((&answer["records"]["waiting"], &answer["records"]["dead"]), (&2.into(), &1.into()));
    assert_eq!((&answer["records"]["keys"], &answer["attempts"]), (&1.into(), &1.into()));
    for line in
        ["stats --json", "quarantine list --json", "message show agfj --json", "stream list orders --json"]
    {
        assert_eq!(scene.ok(line), scene.ok(&format!("{line} --store moved.db")), "{line}");
    }
    let again = scene.ok("push orders one --key k1 --store moved.db");
    assert_eq!(again, "n0z55zmxkvp7\n", "the key is known");
}

#[test]
fn what_cannot_be_copied_is_refused_with_a_reason() {
    let scene = filled();
    let code = |line: &str, words: &str| {
        let ran = scene.run(line);
        assert!(ran.err.contains(words), "{line}: {}", ran.err);
        ran.code
    };
    assert_eq!(code("copy --from none.db --to moved.db", "there is no store none.db"), 6);
    assert!(!scene.path("none.db").exists() && !scene.path("moved.db").exists());
    assert_eq!(code("copy --from sickbay.db --to ./sickbay.db", "source and the target"), 2);
    scene.ok("queue define other --store full.db");
    assert_eq!(code("copy --from sickbay.db --to full.db", "SB0070"), 5);
    scene.write("text.db", "this is no database, but a text that is long enough to be looked at as one");
    assert_eq!(code("copy --from text.db --to moved.db", "SB0007"), 6);
    assert_eq!(
        code("copy --from sickbay.db --to moved.db --server http://127.0.0.1:1", "not through a server"),
        2
    );
    assert_eq!(code("copy --from sickbay.db", "--to"), 2);
    let serve = scene.start("serve");
    assert_eq!(code("copy --from sickbay.db --to moved.db", "stop that process first"), 6);
    serve.signal("TERM");
    assert_eq!(serve.ended(), Some(0));
}

#[test]
fn a_store_whose_copy_is_not_complete_says_how_to_finish_it() {
    let scene = filled();
    scene.ok("copy --from sickbay.db --to moved.db");
    let connection = rusqlite::Connection::open(scene.path("moved.db")).unwrap();
    connection.execute("UPDATE copy SET complete = 0", []).unwrap();
    drop(connection);
    let ran = scene.run("stats --store moved.db");
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(ran.err.contains("SB0071") && ran.err.contains("sickbay copy"), "{}", ran.err);
    let resumed = scene.json("copy --from sickbay.db --to moved.db");
    assert_eq!((&resumed["resumed"], &resumed["verified"]), (&true.into(), &true.into()));
    scene.ok("stats --store moved.db");
}

#[test]
fn damaged_bytes_are_named_and_end_the_copy_with_3() {
    let scene = filled();
    let connection = rusqlite::Connection::open(scene.path("sickbay.db")).unwrap();
    let sql = "UPDATE message SET payload = X'00' WHERE place & ((1 << 40) - 1) = 1";
    assert_eq!(connection.execute(sql, []), Ok(1));
    drop(connection);
    let ran = scene.run("copy --from sickbay.db --to moved.db");
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(
        ran.err.contains("1 message had damaged bytes") && ran.err.contains("n0z55zmxkvp7"),
        "{}",
        ran.err
    );
}
