//! Databases as people set them up: schemas, roles, isolation, addresses.

use std::time::Duration;

use sickbay_core::port::{Deliveries, Desk, Exchange, Overview, Pusher};
use sickbay_core::settlement::Settled;
use sickbay_core::{ErrorKind, QueuePolicy, Settlement, StoreError};
use sickbay_store::{PostgresOptions, PostgresStore};

use super::many::{claim, message, open, queue};
use super::{Schema, address, block, connect};

fn refused(answer: Result<PostgresStore, StoreError>) -> (ErrorKind, &'static str, String) {
    let error = answer.err().unwrap();
    (error.kind(), error.code(), error.to_string())
}

#[test]
fn a_database_that_was_not_migrated_says_so_and_a_newer_one_is_refused() {
    block(async {
        let options = PostgresOptions::default().schema(format!("test_settings_{}", std::process::id()));
        let (kind, code, text) = refused(PostgresStore::connect(&address(), options.clone()).await);
        assert_eq!((kind, code), (ErrorKind::Stop, "SB0063"), "{text}");
        let statements = PostgresStore::migration_sql(&address(), &options).await.unwrap();
        assert!(statements.contains("CREATE TABLE test_settings_"), "they can be read before they are run");
        for _ in 0..2 {
            PostgresStore::migrate(&address(), &options).await.unwrap();
        }
        let store = PostgresStore::connect(&address(), options.clone()).await.unwrap();
        store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
        let client = connect(&address()).await;
        let schema = format!("test_settings_{}", std::process::id());
        let functions =
            |value: u32| format!("UPDATE {schema}.meta SET value = {value} WHERE name = 'functions'");
        client.batch_execute(&functions(1)).await.unwrap();
        let (_, code, text) = refused(PostgresStore::connect(&address(), options.clone()).await);
        assert!(code == "SB0063" && text.contains("revision 1"), "{text}");
        PostgresStore::migrate(&address(), &options).await.unwrap();
        drop(PostgresStore::connect(&address(), options.clone()).await.unwrap());
        // A newer program's functions are kept, and good enough.
        client.batch_execute(&functions(99)).await.unwrap();
        PostgresStore::migrate(&address(), &options).await.unwrap();
        drop(PostgresStore::connect(&address(), options.clone()).await.unwrap());
        let kept = format!("SELECT value FROM {schema}.meta WHERE name = 'functions'");
        assert_eq!(client.query_one(&kept, &[]).await.unwrap().get::<_, i64>(0), 99);
        client
            .batch_execute(&format!("UPDATE {schema}.meta SET value = 99 WHERE name = 'version'"))
            .await
            .unwrap();
        let (_, code, text) = refused(PostgresStore::connect(&address(), options.clone()).await);
        assert!(code == "SB0008" && text.contains("99"), "{text}");
        assert_eq!(PostgresStore::migrate(&address(), &options).await.unwrap_err().code(), "SB0008");
        drop(
            client
                .batch_execute(&format!("SET client_min_messages = error; DROP SCHEMA {schema} CASCADE"))
                .await,
        );
    });
}

#[test]
fn a_role_that_cannot_change_the_schema_can_do_everything_else() {
    block(async {
        let schema = Schema::create().await;
        let client = connect(&address()).await;
        let role = format!("role_{}", schema.0);
        let password = "a password for this test";
        client.batch_execute(&format!("CREATE ROLE {role} LOGIN PASSWORD '{password}'")).await.unwrap();
        client.batch_execute(&PostgresStore::grant_sql(&schema.0, &role).unwrap()).await.unwrap();
        let as_role = {
            let config: tokio_postgres::Config = address().parse().unwrap();
            let port = config.get_ports()[0];
            format!("host=127.0.0.1 port={port} user={role} password='{password}' dbname=postgres")
        };
        let store = PostgresStore::connect(&as_role, schema.options()).await.unwrap();
        store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
        store.push(vec![message("a")]).await.unwrap();
        let held = store.exchange(Exchange::claim(claim(store.process(), 1))).await.unwrap().deliveries;
        let poison = sickbay_core::Decision::Quarantine {
            set_aside: sickbay_core::decide::SetAside::NonRetryableError,
            failure: sickbay_core::Failure::poison("no"),
        };
        let settle = Exchange::settle(vec![Settlement::new(held[0].token(), poison)]);
        assert_eq!(store.exchange(settle).await.unwrap().settled, [Settled::Applied]);
        let id = held[0].message.id;
        store.replay(vec![sickbay_core::port::Replay::raw(id)]).await.unwrap();
        store.sweep().await.unwrap();
        assert!(store.find(id.to_string().parse().unwrap()).await.unwrap().is_some());
        assert!(PostgresStore::migrate(&as_role, &schema.options()).await.is_err());
        drop(store);
        let gone = format!("DROP OWNED BY {role}; DROP ROLE {role}");
        client.batch_execute(&gone).await.unwrap();
    });
}

#[test]
fn a_database_that_is_serializable_by_default_is_no_hindrance() {
    block(async {
        let schema = Schema::create().await;
        let client = connect(&address()).await;
        let name = schema.0.clone();
        client.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.unwrap();
        let set = format!("ALTER DATABASE {name} SET default_transaction_isolation = serializable");
        client.batch_execute(&set).await.unwrap();
        let address = address();
        let (server, _) = address.rsplit_once('/').unwrap();
        let there = format!("{server}/{name}");
        let options = PostgresOptions::default().connections(4);
        PostgresStore::migrate(&there, &options).await.unwrap();
        let store = PostgresStore::connect(&there, options).await.unwrap();
        store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
        let mut tasks = Vec::new();
        for n in 0..8 {
            let store = store.clone();
            tasks.push(tokio::spawn(async move {
                for i in 0..20 {
                    store.push(vec![message(format!("{n} {i}"))]).await.unwrap();
                    let held =
                        store.exchange(Exchange::claim(claim(store.process(), 3))).await.unwrap().deliveries;
                    let done = held.iter().map(|delivery| Settlement::complete(delivery.token())).collect();
                    let settled = store.exchange(Exchange::settle(done)).await.unwrap().settled;
                    assert!(settled.iter().all(|settled| *settled == Settled::Applied));
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert!(store.stats(&queue()).await.unwrap().adds_up());
        store.close().await.unwrap();
        drop(client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await);
    });
}

#[test]
fn an_address_that_leads_nowhere_is_told_apart_from_a_wrong_password() {
    block(async {
        let options = || PostgresOptions::default().connection_wait(Duration::from_secs(3));
        let (kind, code, text) =
            refused(PostgresStore::connect("postgres://x@127.0.0.1:1/x", options()).await);
        assert_eq!((kind, code), (ErrorKind::TryAgain, "SB0061"), "{text}");
        let (_, code, text) = refused(PostgresStore::connect("postgres://h?port=a", options()).await);
        assert_eq!(code, "SB0067", "{text}");
        let config: tokio_postgres::Config = address().parse().unwrap();
        let port = config.get_ports()[0];
        let nobody = format!("postgres://nobody_like_this:wrong@127.0.0.1:{port}/postgres");
        let (kind, code, text) = refused(PostgresStore::connect(&nobody, options()).await);
        assert_eq!((kind, code), (ErrorKind::Stop, "SB0062"), "{text}");
        assert!(!text.contains("wrong"), "no password in {text}");
        let (_, code, text) =
            refused(PostgresStore::connect(&address(), options().schema("Robert\"; --")).await);
        assert_eq!(code, "SB0018", "{text}");
    });
}

#[test]
fn a_server_without_encryption_is_refused_where_it_is_required() {
    block(async {
        let address = format!("{}?sslmode=require", address());
        let (_, code, text) = refused(PostgresStore::connect(&address, PostgresOptions::default()).await);
        assert!(code == "SB0066" || code == "SB0061", "{text}");
    });
}

#[test]
fn a_closed_store_refuses_everything_and_lets_nobody_wait() {
    block(async {
        let schema = Schema::create().await;
        let store = open(&schema, QueuePolicy::default()).await;
        let mut waiting = claim(store.process(), 1);
        waiting.wait = Duration::from_secs(60);
        let (waited, closed) = tokio::join!(store.exchange(Exchange::claim(waiting)), store.close());
        closed.unwrap();
        assert_eq!(waited.unwrap_err().code(), "SB0013");
        assert_eq!(store.stats(&queue()).await.unwrap_err().code(), "SB0013");
    });
}
