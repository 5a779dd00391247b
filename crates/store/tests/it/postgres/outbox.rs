//! Messages in the transaction of the caller's own data.

use sickbay_core::port::{Deliveries, Exchange, Overview};
use sickbay_core::{QueuePolicy, StreamKey};

use super::many::{claim, message, open, queue};
use super::{Schema, address, block, connect};

#[test]
fn a_push_is_there_when_and_only_when_the_callers_transaction_commits() {
    block(async {
        let schema = Schema::create().await;
        let store = open(&schema, QueuePolicy::default()).await;
        let mut client = connect(&address()).await;
        for (commits, expected) in [(false, 0), (true, 1)] {
            let transaction = client.transaction().await.unwrap();
            let order = message("order 7").stream(StreamKey::new("s").unwrap());
            store.push_in(&transaction, &[order]).await.unwrap();
            if commits {
                transaction.commit().await.unwrap();
            } else {
                transaction.rollback().await.unwrap();
            }
            assert_eq!(store.stats(&queue()).await.unwrap().pushed, expected);
        }
        assert_eq!(store.streams(&queue(), 9).await.unwrap().len(), 1);
    });
}

#[test]
fn any_client_can_push_with_plain_sql() {
    block(async {
        let schema = Schema::create().await;
        let store = open(&schema, QueuePolicy::default()).await;
        let client = connect(&address()).await;
        let push = |arguments: &str| schema.sql(&format!("SELECT sickbay.push('q', {arguments})"));
        client.batch_execute(&format!("BEGIN; {}; ROLLBACK", push("'\\x00ff'"))).await.unwrap();
        let first: i64 = client
            .query_one(&push("'\\x00ff', type => 'Paid', key => 'k', priority => 9"), &[])
            .await
            .unwrap()
            .get(0);
        let again: i64 = client.query_one(&push("'other', key => 'k'"), &[]).await.unwrap().get(0);
        assert_eq!(first, again, "the key is known");
        let held = store.exchange(Exchange::claim(claim(store.process(), 9))).await.unwrap().deliveries;
        assert_eq!(held.len(), 1);
        assert_eq!(held[0].message.payload.as_ref(), [0, 255]);
        assert_eq!(held[0].message.priority.get(), 9);
        assert_eq!(held[0].message.message_type.as_ref().unwrap().as_str(), "Paid");
        for (wrong, word) in [
            ("'x', priority => 10", "priority"),
            ("'x', type => 'two words'", "message type"),
            ("'x', key => E'a\\tb'", "idempotency key"),
        ] {
            let error = client.query_one(&push(wrong), &[]).await.unwrap_err();
            assert!(error.as_db_error().unwrap().message().contains(word), "{error:?}");
        }
        let nowhere = schema.sql("SELECT sickbay.push('nowhere', 'x')");
        let error = client.query_one(&nowhere, &[]).await.unwrap_err();
        assert!(error.as_db_error().unwrap().message().contains("there is no queue"));
    });
}

#[test]
fn a_transaction_that_saw_the_past_cannot_push_behind_what_it_did_not_see() {
    block(async {
        let schema = Schema::create().await;
        let store = open(&schema, QueuePolicy::default()).await;
        let stream = || message("x").stream(StreamKey::new("s").unwrap());
        let mut client = connect(&address()).await;
        let builder =
            client.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
        let old = builder.start().await.unwrap();
        old.query("SELECT 1", &[]).await.unwrap();
        sickbay_core::port::Pusher::push(&store, vec![stream()]).await.unwrap();
        assert!(store.push_in(&old, &[stream()]).await.is_err(), "it would not know that it is the second");
    });
}
