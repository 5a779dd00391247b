//! What is drawn on a terminal: the binary runs in one of a fixed size, and the screen is read.

mod screen;

use screen::Terminal;

use crate::command::scene::Scene;

fn lines(screen: &str) -> Vec<&str> {
    screen.lines().collect()
}

#[test]
fn a_table_has_a_bold_header_and_fits_the_terminal() {
    let scene = Scene::with_queue();
    for n in 0..3 {
        let id = scene.ok(&format!("push orders {n} --type AVeryLongTypeIndeed"));
        let why = "the remote side has closed the connection before the answer was complete";
        scene.run_fed(&["message", "dead-letter", id.trim(), "--why", why], b"");
    }
    for width in [60, 80, 120] {
        let mut terminal = Terminal::start(&scene, "quarantine list", (width, 20));
        terminal.ended();
        let shown = terminal.screen();
        let shown = lines(&shown);
        assert_eq!(shown.len(), 4, "a row that is too long does not wrap at {width}: {shown:#?}");
        assert!(shown[0].starts_with("ID        QUEUE   TYPE"), "{shown:#?}");
        assert!(shown[1].ends_with('…'), "what is cut says so at {width}: {shown:#?}");
        assert!(terminal.is_bold(0, 0) && !terminal.is_bold(1, 0));
    }
}

#[test]
fn no_color_is_respected_on_a_terminal() {
    let scene = Scene::with_queue();
    let mut terminal = Terminal::start_with(&scene, "queue list", (80, 20), &[("NO_COLOR", "1")]);
    terminal.ended();
    assert!(terminal.screen().starts_with("QUEUE") && !terminal.is_bold(0, 0));
    let mut terminal = Terminal::start_with(&scene, "queue show x", (80, 20), &[("NO_COLOR", "1")]);
    terminal.ended();
    assert!(!terminal.raw().contains('\u{1b}'), "{:?}", terminal.raw());
}

#[test]
fn a_bulk_verb_asks_and_takes_no_for_an_answer() {
    let scene = Scene::with_queue();
    let id = scene.ok("push orders 1");
    scene.ok(&format!("message dead-letter {}", id.trim()));
    for (answer, left) in [("n\n", 1), ("\n", 1), ("y\n", 0)] {
        let mut terminal = Terminal::start(&scene, "quarantine discard --all", (80, 20));
        terminal.wait_for("1 dead letter");
        terminal.type_in(answer);
        terminal.ended();
        assert_eq!(
            scene.json("stats")["queues"][0]["stats"]["dead"],
            left,
            "{answer:?}: {}",
            terminal.screen()
        );
    }
}

#[test]
fn lines_on_their_way_are_counted_and_the_count_is_cleared() {
    let scene = Scene::with_queue();
    let lines: String = (0..3000).map(|n| format!("{{\"payload\":\"{n}\"}}\n")).collect();
    scene.write("lines.ndjson", &lines);
    let mut terminal = Terminal::start(&scene, "push orders --ndjson --file lines.ndjson", (80, 20));
    terminal.ended();
    assert!(terminal.raw().contains("lines stored"), "{:?}", terminal.raw());
    assert_eq!(terminal.screen(), "3,000 messages pushed", "the count leaves nothing behind");
}

#[test]
fn a_watched_table_is_drawn_over_itself_until_ctrl_c() {
    let scene = Scene::with_queue();
    for line in ["stats", "queue list", "queue show orders", "quarantine list", "stream list orders"] {
        let before = scene.json("stats")["queues"][0]["stats"]["pushed"].as_u64().unwrap();
        let mut terminal = Terminal::start(&scene, &format!("{line} --watch=100ms"), (100, 30));
        let first = terminal.wait_until(|screen| !screen.is_empty());
        let id = scene.ok(&format!("push orders x --stream s{before}"));
        let id = id.trim();
        scene.ok(&format!("message dead-letter {id}"));
        let changed =
            terminal.wait_until(|screen| *screen != first && screen.contains(&(before + 1).to_string()[..]));
        assert!(changed.matches("QUEUE ").count() <= 1, "drawn once: {changed}");
        terminal.type_in("\u{3}");
        assert_eq!(terminal.ended(), 0, "{line}");
    }
}

#[test]
fn the_demo_draws_its_run_and_then_says_what_to_type() {
    for width in [80, 120] {
        let scene = Scene::new();
        let mut terminal = Terminal::start(&scene, "demo --messages 400 --keep kept", (width, 24));
        let picture = terminal.wait_until(|screen| screen.contains("incidents found"));
        for words in ["400 orders, ", "█", " of 400 ", "\n  paid ", "\n  quarantined ", "ValidationFailure"]
        {
            assert!(picture.contains(words), "{words}: {picture}");
        }
        terminal.wait_until(|screen| screen.contains("died"));
        assert_eq!(terminal.ended(), 0);
        let shown = terminal.screen();
        assert!(!shown.contains("incidents found") && !shown.contains('█'), "the picture is gone: {shown}");
        assert!(shown.contains("balanced to the cent") && shown.contains("Type next:"), "{shown}");
    }
}
