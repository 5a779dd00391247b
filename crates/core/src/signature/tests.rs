use super::*;

fn of(text: &str) -> Signature {
    signature(&subject(text))
}

fn subject(text: &str) -> Subject<'_> {
    Subject {
        queue: "orders",
        message_type: Some("OrderPlaced"),
        reason: "HandlerException",
        text,
        schema_path: None,
    }
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(normalise(text), *expected, "for {text:?}");
    }
}

#[test]
fn volatile_parts_become_placeholders() {
    check(&[
        ("order 17 of -3.5e10 at 99%", "order <num> of <num> at <num>%"),
        ("id 6ba7b810-9dad-11d1-80b4-00c04fd430c8 or 0xdeadBEEF", "id <id> or <id>"),
        ("blk_-1608999687919862906 on node-7", "<id> on <id>"),
        (
            "from 10.1.2.3:5432 and /10.1.2.3:80 and fe80::1 and [::1]:80",
            "from <ip> and <ip> and <ip> and [<ip>]:<num>",
        ),
        ("db.internal down, kafka.acme.com:9092 up", "<host> down, <host> up"),
        ("connect to postgres:5432", "connect to <host>"),
        ("open /etc/x/y.conf:12: no", "open <path>: no"),
        ("open src/y.rs:12:5 no", "open <path> no"),
        ("undefined method `price' for nil", "undefined method <val> for nil"),
        ("open C:\\Program Files\\Acme\\x.log now", "open <path> now"),
        ("see https://a.example/b?c=d#e, please", "see <url>, please"),
        ("mail to jane.doe@example.org", "mail to <email>"),
        ("at 2024-01-31T10:22:33.123+01:00 or 10:22:33", "at <time> or <time>"),
        ("on Mon, 02 Jan 2006 15:04:05 GMT it", "on <time> it"),
        ("took 250ms or 3 seconds or 1h5m", "took <duration> or <duration> or <duration>"),
        ("holds 5 KB of 93.0 B or 8KiB", "holds <size> of <size> or <size>"),
        ("field 'a b' is \"x\" not `y`", "field <val> is <val> not <val>"),
        ("uid=0 tty= rhost=abc, n=5", "uid=<val> tty=<val> rhost=<val>, n=<val>"),
        ("session of user karin on pts", "session of user <user> on pts"),
        ("enabled is true", "enabled is <bool>"),
        ("token eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9 bad", "token <id> bad"),
        ("ids 1, 2, 3 gone", "ids <num> gone"),
    ]);
}

#[test]
fn words_that_tell_the_cause_are_kept() {
    check(&[
        ("invalid utf-8, not base64 or i32", "invalid utf-8, not base64 or i32"),
        ("(2006, \"server has gone away\")", "(<num>, \"server has gone away\")"),
        ("Error: \"no route to host\"", "Error: \"no route to host\""),
        ("can't read and/or write", "can't read and/or write"),
        (
            "java.net.SocketTimeoutException: Read timed out",
            "java.net.SocketTimeoutException: Read timed out",
        ),
        ("std::io::Error in HttpServer2$Filter", "std::io::Error in HttpServer$Filter"),
        ("jk2_init() failed", "jk2_init() failed"),
        ("user not found", "user not found"),
        ("exit code 137 and status 503 but status 200", "exit code 137 and status 503 but status <num>"),
        ("returned 502 from upstream, returned 502 rows", "returned 502 from upstream, returned <num> rows"),
        ("(os error 111) SQLSTATE 42P01", "(os error 111) SQLSTATE 42P01"),
        ("level=error msg=\"no route 5\" err='x 7'", "level=error msg=\"no route <num>\" err='x <num>'"),
        ("{\"error\":\"invalid_grant\",\"id\":\"x7\"}", "{\"error\":\"invalid_grant\",\"id\":<val>}"),
        ("\"POST /v1/orders/7 HTTP/1.1\" 404", "\"POST <path> HTTP\" 404"),
    ]);
}

#[test]
fn of_a_trace_message_root_and_top_calls_are_kept() {
    let java = "Exception in thread \"main\" com.acme.Failed: order 7\n\tat com.acme.A.outer(A.java:1)\n\
        Caused by: java.io.IOException: disk 3 full\n\tat java.base/java.io.Writer.write(Writer.java:9)\n\
        \tat com.acme.B.inner(B.java:5)\n\tat com.acme.B.middle(B.java:6)\n\tat com.acme.B.outer(B.java:7)\n\t... 3 more";
    let python = "noise 1\nTraceback (most recent call last):\n  File \"/x/a.py\", line 3, in outer\n    inner()\n\
        \x20 File \"/x/a.py\", line 9, in inner\n    1/0\n    ~^~\nZeroDivisionError: division by zero";
    check(&[
        (
            java,
            "com.acme.Failed: order <num>\ncaused by: java.io.IOException: disk <num> full\nat com.acme.B.inner\nat com.acme.B.middle",
        ),
        (python, "ZeroDivisionError: division by zero\nat inner\nat outer"),
        (
            "Error: outer 1\n\nCaused by:\n    0: middle\n    1: root 2",
            "Error: outer <num>\ncaused by: root <num>",
        ),
        (
            "Bad: [\n  {\n    \"code\": \"too_big\",\n    \"max\": 5\n  }\n]",
            "Bad: [ { \"code\": \"too_big\", \"max\": <num> } ]",
        ),
        ("A: x ---> B: y ---> C: z", "A: x\ncaused by: C: z"),
    ]);
}

#[test]
fn terminal_colours_do_not_change_a_signature_even_when_escaped() {
    assert_eq!(of("\u{1b}[31merror\u{1b}[0m: no disk"), of("error: no disk"));
    assert_eq!(of("\\u{1b}[31merror\\u{1b}[0m: no disk\\u{d}"), of("error: no disk"));
}

#[test]
fn queue_type_and_reason_are_part_of_the_signature() {
    let base = subject("boom");
    let others = [
        Subject { queue: "payments", ..base },
        Subject { message_type: None, ..base },
        Subject { reason: "TimeoutExceeded", ..base },
        Subject { text: "bang", ..base },
        Subject { schema_path: Some("/total"), ..base },
        Subject { queue: "ordersOrder", message_type: Some("Placed"), ..base },
    ];
    for other in others {
        assert_ne!(signature(&base), signature(&other), "{other:?}");
    }
}

#[test]
fn a_schema_path_counts_without_places_in_lists_and_without_the_text() {
    let at = |path, text| signature(&Subject { schema_path: Some(path), ..subject(text) });
    assert_eq!(at("/items/3/price", "a"), at("/items/12/price", "b"));
    assert_eq!(at("$.items[3].price", "a"), at("$.items[4].price", "a"));
    assert_ne!(at("/items/3/price", "a"), at("/items/3/count", "a"));
    assert_ne!(at("/v2", "a"), at("/v3", "a"));
    assert_ne!(at("/3d", "a"), at("/4d", "a"), "a name that begins with a digit");
    assert_ne!(at("/a//b", "a"), at("/a/3/b", "a"), "an empty name");
}

#[test]
fn of_a_long_text_sixteen_kilobytes_of_its_beginning_and_its_end_count() {
    let short = "x".repeat(32 << 10);
    assert_eq!(excerpt(&short), (vec![short.as_str()], false));
    let long = format!("{short}x");
    assert_eq!(excerpt(&long), (vec![&long[..16 << 10]], true));
    // The sixteen thousandth byte is in the middle of a character.
    let wide = format!("x{}", "é".repeat(16 << 10));
    assert_eq!(excerpt(&wide), (vec![&wide[..(16 << 10) - 1]], true));
    let lines = format!("a\n{wide}\né");
    assert_eq!(excerpt(&lines), (vec!["a", "é"], false));
    let end = format!("{wide}\né");
    assert_eq!(excerpt(&end), (vec![&wide[..(16 << 10) - 1], "é"], true));
    let beginning = format!("a\n{wide}");
    assert_eq!(excerpt(&beginning), (vec!["a"], false));
}

#[test]
fn a_signature_survives_its_text_form() {
    for bits in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
        let signature = Signature::from_bits(bits);
        let text = signature.to_string();
        assert_eq!(text.len(), 13);
        assert_eq!(text.parse(), Ok(signature));
        assert_eq!(text.to_uppercase().parse(), Ok(signature));
        let json = serde_json::to_string(&signature).unwrap();
        assert_eq!(serde_json::from_str::<Signature>(&json).unwrap().to_bits(), bits);
    }
    for wrong in ["", "0", "zzzzzzzzzzzzz", "000000000000u", "00000000000000", "é00000000000"] {
        assert_eq!(wrong.parse::<Signature>(), Err(NotASignature), "{wrong:?}");
    }
}

#[test]
fn signatures_never_change_between_versions() {
    // Stores keep signatures. A change here makes every incident a new one: say so in the changelog.
    assert_eq!(of("order 17 not found at 10.0.0.7:5432").to_string(), "083rknr2jycs8");
    assert_eq!(signature(&Subject { schema_path: Some("/a/0"), ..subject("") }).to_string(), "2jcxp38k8q91v");
}

#[test]
fn the_first_rule_that_matches_names_the_group() {
    let rules = [
        GroupingRule::new("s3-$code", r"S3 said (?<code>\w+)").unwrap(),
        GroupingRule::new("any s3", "S3").unwrap(),
    ];
    let grouping = Grouping::new(&rules);
    assert_eq!(grouping.rule_for("oh: S3 said SlowDown").as_deref(), Some("s3-SlowDown"));
    assert_eq!(grouping.rule_for("S3 gone").as_deref(), Some("any s3"));
    let by = |text| grouping.signature(&subject(text));
    assert_eq!(by("S3 said SlowDown to a"), by("whatever, S3 said SlowDown"));
    assert_ne!(by("S3 said SlowDown"), by("S3 said AccessDenied"));
    assert_eq!(by("no rule for this"), of("no rule for this"));
    let texts = ["S3 said SlowDown to a", "no rule for this"];
    let many = grouping.signatures(&texts.map(subject));
    let each: Vec<_> = texts.iter().map(|text| by(text)).collect();
    assert_eq!(many.iter().map(|(signature, _)| *signature).collect::<Vec<_>>(), each);
    assert_eq!(many[0].1, "s3-SlowDown");
}

#[test]
fn a_rule_looks_at_the_first_sixteen_kilobytes() {
    let rule = [GroupingRule::new("wide", "é").unwrap()];
    let text = |before: usize| format!("{}é", "x".repeat(before));
    assert!(Grouping::new(&rule).rule_for(&text((16 << 10) - 2)).is_some());
    assert!(Grouping::new(&rule).rule_for(&text((16 << 10) - 1)).is_none());
}

#[test]
fn rules_are_the_same_if_name_and_pattern_are() {
    let rule = |name: &str, pattern: &str| GroupingRule::new(name, pattern).unwrap();
    assert_eq!(rule("a", "x"), rule("a", "x"));
    assert_ne!(rule("a", "x"), rule("b", "x"));
    assert_ne!(rule("a", "x"), rule("a", "y"));
}

#[test]
fn control_characters_are_spaces() {
    check(&[("a\u{1}b\u{fffd}c", "a b c")]);
}

#[test]
fn a_rule_is_written_as_name_and_pattern_and_refused_if_wrong() {
    let rule: GroupingRule = serde_json::from_str(r#"{"name":"a","pattern":"b+"}"#).unwrap();
    assert_eq!((rule.name(), rule.pattern()), ("a", "b+"));
    assert_eq!(serde_json::to_string(&rule).unwrap(), r#"{"name":"a","pattern":"b+"}"#);
    assert!(matches!(GroupingRule::new(" ", "x"), Err(GroupingRuleError::NoName)));
    for pattern in ["(", "(?:a{1000}){1000}"] {
        assert!(matches!(GroupingRule::new("a", pattern), Err(GroupingRuleError::Pattern { .. })));
    }
    assert!(serde_json::from_str::<GroupingRule>(r#"{"name":"a","pattern":"("}"#).is_err());
    assert!(serde_json::from_str::<GroupingRule>(r#"{"name":"a","pattern":"x","other":1}"#).is_err());
}

#[test]
fn a_batch_merges_a_name_that_keeps_changing() {
    let names = ["ada", "grace", "alan", "edsger", "barbara", "donald"];
    let texts: Vec<String> = names.iter().map(|name| format!("mailbox of {name} is over quota")).collect();
    let subjects: Vec<Subject<'_>> = texts.iter().map(|text| subject(text)).collect();
    let grouped = signatures(&subjects);
    assert!(
        grouped.iter().all(|(signature, text)| {
            *signature == grouped[0].0 && text == "mailbox of <val> is over quota"
        })
    );
    let few = signatures(&subjects[..3]);
    assert!(
        few.iter().zip(&subjects).all(|((signature, _), subject)| *signature == self::signature(subject))
    );
}

#[test]
fn a_batch_never_merges_states_exceptions_calls_and_what_follows_error() {
    let families: [Vec<String>; 4] = [
        ["NEW", "RUNNING", "KILLED", "FAILED", "DONE", "LOST"]
            .map(|it| format!("task went to {it} too early"))
            .into(),
        ["Io", "Parse", "Lock", "Codec", "Auth", "Route"]
            .map(|it| format!("handler raised {it}Exception at once"))
            .into(),
        ["a", "b", "c", "d", "e", "f"]
            .map(|it| format!("Oops: it broke\n\tat com.acme.Main.{it}(Main.java:7)"))
            .into(),
        ["refused", "reset", "aborted", "closed", "lost", "denied"]
            .map(|it| format!("cannot send mail, error: {it}"))
            .into(),
    ];
    for texts in families {
        let subjects: Vec<Subject<'_>> = texts.iter().map(|text| subject(text)).collect();
        let grouped = signatures(&subjects);
        let distinct: std::collections::BTreeSet<_> =
            grouped.iter().map(|(signature, _)| signature).collect();
        assert_eq!(distinct.len(), texts.len(), "{texts:?}");
    }
}

#[test]
fn a_batch_keeps_queues_apart() {
    let names = ["ada", "grace", "alan", "edsger", "barbara", "donald"];
    let texts: Vec<String> = names.iter().map(|name| format!("mailbox of {name} is over quota")).collect();
    let queues = ["a", "b", "a", "b", "a", "b"];
    let subjects: Vec<_> =
        texts.iter().zip(queues).map(|(text, queue)| Subject { queue, ..subject(text) }).collect();
    let distinct: std::collections::BTreeSet<_> = signatures(&subjects).into_iter().map(|(s, _)| s).collect();
    assert_eq!(distinct.len(), 6, "three names per queue are too few to merge");
}

/// How many signatures these texts have together.
fn groups(texts: &[&str]) -> usize {
    let subjects: Vec<Subject<'_>> = texts.iter().map(|text| subject(text)).collect();
    let signatures = signatures(&subjects).into_iter().map(|(signature, _)| signature);
    signatures.collect::<std::collections::BTreeSet<_>>().len()
}

/// The same sentence about each of these.
fn about(subjects: &[&str]) -> usize {
    let texts: Vec<String> = subjects.iter().map(|it| format!("handler {it} stopped by itself")).collect();
    groups(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_batch_merges_only_what_there_is_evidence_for() {
    // Names in code: three, or two besides a place that is known to be volatile.
    assert_eq!(about(&["orderJob", "mailJob", "billJob"]), 1);
    assert_eq!(about(&["order_job", "mail_job", "bill_job"]), 1);
    assert_eq!(about(&["orderJob", "mailJob"]), 2);
    assert_eq!(about(&["orderJob", "mailJob", "17"]), 1);
    assert_eq!(about(&["orderJob", "17"]), 2);
    // Words: five, of which one may be a name, or three besides a place that is known to be volatile.
    assert_eq!(about(&["ada", "grace", "alan", "edsger", "barbara"]), 1);
    assert_eq!(about(&["ada", "grace", "alan", "edsger"]), 4);
    assert_eq!(about(&["ada", "grace", "alan", "edsger", "mailJob"]), 1);
    assert_eq!(about(&["ada", "grace", "alan", "mailJob"]), 4);
    assert_eq!(about(&["ada", "grace", "alan", "17"]), 1);
    assert_eq!(about(&["ada", "grace", "17"]), 3);
    // Two words besides it must be the same.
    assert_eq!(groups(&["no ada", "no grace", "no alan", "no edsger", "no barbara"]), 5);
    assert_eq!(groups(&["no ada now", "no grace now", "no alan now", "no edsger now", "no barbara now"]), 1);
}

#[test]
fn a_batch_merges_two_places_one_after_the_other_or_both_at_once() {
    let names = ["ada", "grace", "alan", "edsger", "barbara"];
    let zones = ["north", "south", "east", "west", "centre"];
    let texts: Vec<String> = names
        .iter()
        .flat_map(|name| zones.iter().map(move |zone| format!("mailbox of {name} in {zone} is full")))
        .collect();
    assert_eq!(groups(&texts.iter().map(String::as_str).collect::<Vec<_>>()), 1);
    let pairs = ["copy of aB to cD failed", "copy of eF to gH failed", "copy of iJ to kL failed"];
    assert_eq!(groups(&pairs), 1);
    assert_eq!(groups(&pairs[..2]), 2);
}

#[test]
fn what_a_batch_merges_keeps_its_calls() {
    let names = ["ada", "grace", "alan", "edsger", "barbara"];
    let texts = names.map(|name| format!("no mail for {name} today\n\tat com.acme.Main.run(Main.java:7)"));
    let subjects: Vec<Subject<'_>> = texts.iter().map(|text| subject(text)).collect();
    for (_, shown) in signatures(&subjects) {
        assert_eq!(shown, "no mail for <val> today\nat com.acme.Main.run");
    }
}
