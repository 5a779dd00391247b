//! Stores are copied to PostgreSQL and back.

use std::sync::Arc;

use sickbay_core::port::{Desk, Export, PageSize, Pusher};
use sickbay_core::{Clock, NewMessage, QueuePolicy, StoreError};
use sickbay_store::{PostgresAtRest, PostgresOptions, PostgresStore};

use super::{Schema, address, connect};
use crate::copying::scene::{Hand, queue};
use crate::copying::{Failing, Files, SMALL, assert_same, copied, records};

fn options(schema: &Schema, files: &Files) -> PostgresOptions {
    schema.options().clock(Arc::new(files.clock.clone())).listen(false).connections(2)
}

async fn source(schema: &Schema, files: &Files) -> Result<PostgresAtRest, StoreError> {
    PostgresAtRest::open_source(&address(), &options(schema, files)).await
}

async fn target(schema: &Schema, files: &Files) -> PostgresAtRest {
    PostgresAtRest::open_target(&address(), &options(schema, files)).await.unwrap()
}

async fn open(schema: &Schema, files: &Files) -> PostgresStore {
    PostgresStore::connect(&address(), options(schema, files)).await.unwrap()
}

#[tokio::test]
async fn a_store_copied_to_postgres_and_on_and_back_equals_itself_and_lives_on_like_it() {
    let files = Files::new();
    let picture = files.filled("a.db").await;
    let (first, second) = (Schema::create().await, Schema::create().await);
    let expected = records(&files.source("a.db")).await;
    let to_postgres = target(&first, &files).await;
    let epoch = files.source("a.db").identity().await.unwrap().marks.epoch;
    let report = copied(&files.source("a.db"), &to_postgres, SMALL).await.unwrap();
    assert!(to_postgres.identity().await.unwrap().marks.epoch > epoch, "no token of the source counts");
    assert!(!report.resumed && report.attempts > 20, "{report:?}");
    drop(to_postgres);
    let (from, on) = (source(&first, &files).await.unwrap(), target(&second, &files).await);
    copied(&from, &on, SMALL).await.unwrap();
    drop((from, on));
    let (from, back) = (source(&second, &files).await.unwrap(), files.target("b.db"));
    copied(&from, &back, SMALL).await.unwrap();
    assert_same(&expected, &records(&back).await);
    drop((from, back));
    let now = files.clock.now();
    let mut lives = Vec::new();
    for schema in [&first, &second] {
        files.clock.set(now);
        let store = open(schema, &files).await;
        let hand = Hand { store: &store, clock: &files.clock };
        assert_same(&picture, &hand.picture().await);
        lives.push(hand.live_on().await);
        store.close().await.unwrap();
    }
    for name in ["b.db", "a.db"] {
        files.clock.set(now);
        let store = files.open(name);
        let hand = Hand { store: &store, clock: &files.clock };
        assert_same(&picture, &hand.picture().await);
        lives.push(hand.live_on().await);
    }
    for life in &lives[1..] {
        assert_same(&lives[0], life);
    }
}

#[tokio::test]
async fn a_store_filled_on_postgres_is_copied_to_a_file_and_back() {
    let files = Files::new();
    let (first, second) = (Schema::create().await, Schema::create().await);
    let store = open(&first, &files).await;
    let hand = Hand { store: &store, clock: &files.clock };
    hand.fill().await;
    let picture = hand.picture().await;
    store.close().await.unwrap();
    let from = source(&first, &files).await.unwrap();
    copied(&from, &files.target("a.db"), SMALL).await.unwrap();
    copied(&files.source("a.db"), &target(&second, &files).await, SMALL).await.unwrap();
    assert_same(&records(&from).await, &records(&source(&second, &files).await.unwrap()).await);
    drop(from);
    let now = files.clock.now();
    let file = files.open("a.db");
    let hand = Hand { store: &file, clock: &files.clock };
    assert_same(&picture, &hand.picture().await);
    let life = hand.live_on().await;
    files.clock.set(now);
    let store = open(&first, &files).await;
    let hand = Hand { store: &store, clock: &files.clock };
    assert_same(&hand.live_on().await, &life);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_copy_to_postgres_that_is_killed_at_any_transaction_goes_on_where_it_stopped() {
    let files = Files::new();
    files.filled("a.db").await;
    let from = files.source("a.db");
    let expected = records(&from).await;
    let size = PageSize { rows_max: 40, bytes_max: 100_000 };
    for turn in 0.. {
        // Before the commit, or after it.
        let after = turn % 2 == 1;
        let schema = Schema::create().await;
        let to = target(&schema, &files).await;
        if copied(&from, &Failing::new(&to, turn, after), size).await.is_ok() {
            assert!(turn > 10, "every transaction was killed once");
            return;
        }
        drop(to);
        if turn > 0 && !after {
            let refused = PostgresStore::connect(&address(), options(&schema, &files)).await.map(drop);
            assert_eq!(refused.unwrap_err().code(), "SB0071");
        }
        let to = target(&schema, &files).await;
        match copied(&from, &to, size).await {
            Ok(copied) => assert_eq!(copied.resumed, turn > 0),
            // It was killed after it was complete.
            Err(error) => assert_eq!((error.code(), after), ("SB0070", true), "{error}"),
        }
        assert_same(&expected, &records(&to).await);
    }
}

#[tokio::test]
async fn a_source_that_somebody_works_on_is_refused_and_says_who_does() {
    let files = Files::new();
    let schema = Schema::create().await;
    let store = open(&schema, &files).await;
    store.define_queue(&queue("q"), QueuePolicy::default()).await.unwrap();
    store.push(vec![NewMessage::new(queue("q"), "x")]).await.unwrap();
    let error = source(&schema, &files).await.map(drop).unwrap_err();
    assert_eq!(error.code(), "SB0072");
    assert!(error.to_string().contains("has it open"), "{error}");
    let hand = Hand { store: &store, clock: &files.clock };
    assert_eq!(hand.claim("q", 1).await.len(), 1);
    store.close().await.unwrap();
    let error = source(&schema, &files).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("host/1/worker (process 4242) holds 1 of queue q"), "{error}");
    // A lease that has run out is nobody's.
    files.clock.advance(std::time::Duration::from_secs(31));
    let source = source(&schema, &files).await.unwrap();
    assert_eq!(records(&source).await.lines().count(), 2);
}

#[tokio::test]
async fn nobody_changes_the_source_while_it_is_copied() {
    let files = Files::new();
    let schema = Schema::create().await;
    let client = connect(&address()).await;
    let store = open(&schema, &files).await;
    store.define_queue(&queue("q"), QueuePolicy::default()).await.unwrap();
    store.close().await.unwrap();
    let source = source(&schema, &files).await.unwrap();
    let push = schema.sql("SET lock_timeout = '200ms'; SELECT sickbay.push('q', 'x')");
    let refused = client.batch_execute(&push).await.unwrap_err();
    assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("55P03"));
    drop(source);
    client.batch_execute(&schema.sql("RESET lock_timeout; SELECT sickbay.push('q', 'x')")).await.unwrap();
}

#[tokio::test]
async fn the_same_schema_a_full_one_a_newer_one_and_none_are_refused() {
    let files = Files::new();
    let (schema, full) = (Schema::create().await, Schema::create().await);
    let store = open(&full, &files).await;
    store.define_queue(&queue("q"), QueuePolicy::default()).await.unwrap();
    store.close().await.unwrap();
    let from = source(&full, &files).await.unwrap();
    let error = copied(&from, &target(&full, &files).await, SMALL).await.unwrap_err();
    assert_eq!(error.code(), "SB0074");
    drop(from);
    files.filled("a.db").await;
    let error = copied(&files.source("a.db"), &target(&full, &files).await, SMALL).await.unwrap_err();
    assert_eq!(error.code(), "SB0070");
    let none = schema.options().schema("sickbay_test_that_is_not_there");
    let error = PostgresAtRest::open_target(&address(), &none).await.map(drop).unwrap_err();
    assert_eq!(error.code(), "SB0063");
    let client = connect(&address()).await;
    let version =
        |by: &str| schema.sql(&format!("UPDATE sickbay.meta SET value = value {by} WHERE name = 'version'"));
    client.batch_execute(&version("+ 1")).await.unwrap();
    let newer = PostgresAtRest::open_target(&address(), &options(&schema, &files)).await.map(drop);
    client.batch_execute(&version("- 1")).await.unwrap();
    assert_eq!(newer.unwrap_err().code(), "SB0008");
}

#[tokio::test]
async fn the_role_of_the_workers_can_copy_into_a_schema_that_was_migrated_for_it() {
    let files = Files::new();
    files.filled("a.db").await;
    let schema = Schema::create().await;
    let client = connect(&address()).await;
    let role = format!("{}_copy", schema.0);
    let make = format!("DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN PASSWORD 'of-the-copy'");
    client.batch_execute(&make).await.unwrap();
    PostgresStore::grant(&address(), &schema.options(), &role).await.unwrap();
    let whole = address();
    let (_, host) = whole.rsplit_once('@').unwrap();
    let as_role = format!("postgres://{role}:of-the-copy@{host}");
    let to = PostgresAtRest::open_target(&as_role, &options(&schema, &files)).await.unwrap();
    copied(&files.source("a.db"), &to, SMALL).await.unwrap();
    drop(to);
    let from = PostgresAtRest::open_source(&as_role, &options(&schema, &files)).await.unwrap();
    assert_same(&records(&from).await, &records(&files.source("a.db")).await);
    drop(from);
    client.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
}

#[tokio::test]
async fn what_was_committed_out_of_order_damaged_or_pushed_by_plain_sql_stays_what_it_is() {
    let files = Files::new();
    let schema = Schema::create().await;
    let store = open(&schema, &files).await;
    store.define_queue(&queue("q"), QueuePolicy::default()).await.unwrap();
    let message = |text: &'static str| NewMessage::new(queue("q"), text);
    let pushed = store.push(vec![message("a"), message("b"), message("c"), message("d")]).await.unwrap();
    store.close().await.unwrap();
    let client = connect(&address()).await;
    let sql = "UPDATE sickbay.waiting SET pushed_at = pushed_at + 5000, due_at = due_at + 5000 WHERE payload IN ('a', 'c');
        UPDATE sickbay.waiting SET payload = 'x' WHERE payload = 'd'; SELECT sickbay.push('q', 'by hand');
        UPDATE sickbay.waiting SET pushed_at = 7, due_at = 7 WHERE payload = 'by hand'";
    client.batch_execute(&schema.sql(sql)).await.unwrap();
    let copied = copied(&source(&schema, &files).await.unwrap(), &files.target("a.db"), SMALL).await.unwrap();
    assert_eq!((copied.damaged, copied.damaged_ids.as_slice()), (1, &[pushed[3].id()][..]));
    files.clock.advance(std::time::Duration::from_secs(10));
    let store = files.open("a.db");
    let hand = Hand { store: &store, clock: &files.clock };
    let claimed = hand.claim("q", 9).await;
    let order: Vec<_> = claimed.iter().map(|delivery| delivery.message.payload.as_ref()).collect();
    assert_eq!(order, [&b"by hand"[..], b"b", b"a", b"c"], "by their times; the damaged one is nobody's");
}
