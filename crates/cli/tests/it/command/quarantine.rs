//! Dead letters.

use super::scene::Scene;

/// Three dead letters, two of them of type A.
fn three() -> Scene {
    let scene = Scene::with_queue();
    for (payload, message_type) in [("1", "A"), ("2", "A"), ("3", "B")] {
        let id = scene.ok(&format!("push orders {payload} --type {message_type}"));
        scene.ok(&format!("message dead-letter {} --why broken-{payload}", id.trim()));
    }
    scene
}

fn dead(scene: &Scene) -> u64 {
    scene.json("quarantine list")["count"].as_u64().unwrap()
}

#[test]
fn dead_letters_are_listed_newest_first_and_filtered() {
    let scene = three();
    let listed = scene.ok("quarantine list");
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("ID        QUEUE   TYPE  SET ASIDE  REASON    TRIES  AGE"), "{listed}");
    assert!(lines[1].starts_with("zgqfqfhm  orders  B     Operator   Operator      0  "), "{listed}");
    assert!(lines[1].ends_with("  broken-3") && lines[3].ends_with("  broken-1"), "{listed}");
    assert_eq!(scene.ok("dlq list --type A").lines().count(), 3);
    assert_eq!(scene.ok("dlq list --error BROKEN-2").lines().count(), 2);
    assert_eq!(scene.ok("dlq list --since 1h --reason operator").lines().count(), 4);
    let none = scene.run("dlq list --until 1h");
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (0, "", "no dead letters\n"));
    let page = scene.run("dlq list --limit 2");
    assert!(page.err.starts_with("2 of 3 are shown; go on with --after "), "{}", page.err);
    let after = page.err.trim().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(scene.ok(&format!("dlq list --after {after}")).lines().count(), 2);
    assert_eq!(scene.run("dlq list --reason Nonsense").code, 2);
    assert_eq!(scene.json("quarantine show zgq")["dead"]["set_aside"], "Operator");
}

#[test]
fn everything_is_meant_only_if_it_is_said() {
    let scene = three();
    for verb in ["replay", "discard", "restore"] {
        let ran = scene.run(&format!("quarantine {verb}"));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""));
        let told = format!("error: nothing is named: that would {verb} every dead letter\n");
        assert!(ran.err.starts_with(&told) && ran.err.contains("--all"), "{}", ran.err);
    }
    assert_eq!(dead(&scene), 3);
}

#[test]
fn without_a_terminal_and_without_yes_nothing_is_done() {
    let scene = three();
    let ran = scene.run("quarantine discard --type A");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert_eq!(
        ran.err,
        "error: nobody is there to be asked: stdin is no terminal\n  \
         this would discard 2 dead letters; say --yes if it is meant\n"
    );
    assert_eq!(dead(&scene), 3);
}

#[test]
fn many_are_discarded_restored_and_sent_back() {
    let scene = three();
    assert_eq!(scene.ok("quarantine discard --type A --yes --why old"), "2 dead letters discarded\n");
    assert_eq!(scene.ok("quarantine list --discarded").lines().count(), 3);
    assert_eq!(scene.ok("quarantine restore --all --yes"), "2 dead letters restored\n");
    assert_eq!(scene.json("quarantine replay --all --yes")["done"], 3);
    assert_eq!(dead(&scene), 0);
    assert_eq!(scene.json("stats")["queues"][0]["stats"]["pending"], 3);
}

#[test]
fn single_ones_are_named_by_the_beginnings_of_their_ids() {
    let scene = three();
    let ran = scene.run("quarantine replay n0z zzz");
    assert_eq!((ran.code, ran.out.as_str()), (4, "1 dead letter sent back, 1 not\n"));
    assert_eq!(ran.err, "zzz: there is no such message\n");
    let ran = scene.run("quarantine replay n0z");
    assert_eq!((ran.code, ran.out.as_str()), (5, "0 dead letters sent back, 1 not\n"));
    assert_eq!(scene.run("quarantine replay zgq --type B").code, 2);
    assert_eq!(scene.run("quarantine replay --payload x --all").code, 2);
}

#[test]
fn a_dead_letter_is_sent_back_with_a_better_payload() {
    let scene = three();
    scene.write("better", "{\"fixed\": true}");
    assert_eq!(scene.ok("quarantine replay n0z --payload better"), "1 dead letter sent back\n");
    let view = scene.json("message show n0z");
    assert_eq!((&view["payload"], &view["original_payload"]), (&"{\"fixed\": true}".into(), &"1".into()));
}
