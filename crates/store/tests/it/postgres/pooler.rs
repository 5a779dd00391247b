//! Behind a pooler in transaction mode: each transaction may run on another connection of the server.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use sickbay_testkit::Fixture;
use sickbay_testkit::cluster::server_user;
use sickbay_testkit::conformance::{claims, crashes, desk, keys, leases, push, quarantine, settle, streams};

use super::many::{claim, message, push_many, queue};
use super::{PostgresFixture, RUNTIME, Schema, address, block};
use sickbay_core::port::{Deliveries, Desk, Exchange, Overview};
use sickbay_core::{QueuePolicy, Settlement};
use sickbay_store::PostgresStore;

/// PgBouncer before the server of the tests. It ends with its pipe.
struct Pooler {
    child: Child,
    folder: PathBuf,
    address: String,
}

impl Pooler {
    fn start() -> Self {
        let config: tokio_postgres::Config = address().parse().unwrap();
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let folder = std::env::temp_dir().join(format!("sickbay-pooler-{}-{port}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let user = config.get_user().unwrap_or("postgres");
        let password = config.get_password().map(String::from_utf8_lossy);
        let password = password.map_or_else(String::new, |password| format!(" password={password}"));
        let ini = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user={user}{password}\n[pgbouncer]\n\
            listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
            pool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 50\n",
            config.get_ports()[0]
        );
        let path = folder.join("pooler.ini");
        std::fs::write(&path, ini).unwrap();
        // It ends with the pooler, or the pooler with our end of the pipe.
        let script = r#"exec 3<&0; "$@" </dev/null 3<&- & p=$!
            { read -r stop; kill $p; } <&3 >/dev/null 2>&1 & exec 3<&-; wait $p"#;
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"]
            .into_iter()
            .find(|path| PathBuf::from(path).exists());
        let mut command = Command::new("sh");
        command.args(["-c", script, "guard", program.expect("PgBouncer is installed"), "-q"]).arg(&path);
        command.current_dir(&folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // It does not run as root.
        if let Some((uid, gid)) = server_user() {
            chown(&folder, Some(uid), Some(gid)).unwrap();
            chown(&path, Some(uid), Some(gid)).unwrap();
            command.uid(uid).gid(gid);
        }
        let mut child = command.spawn().unwrap();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "the pooler ended");
            std::thread::yield_now();
        }
        Self { child, folder, address: format!("postgres://anybody@127.0.0.1:{port}/postgres") }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            drop(pipe.write_all(b"stop\n"));
        }
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

macro_rules! keeps {
    ($pooler:expr; $($group:ident::$promise:ident),* $(,)?) => {
        $({
            let mut fixture = PostgresFixture::at($pooler.address.clone());
            let fixture: &mut dyn Fixture = &mut fixture;
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on($group::$promise(fixture));
        })*
    };
}

#[test]
fn the_core_of_what_is_promised_holds_behind_a_pooler_in_transaction_mode() {
    let pooler = Pooler::start();
    keeps!(pooler;
        push::a_batch_is_stored_as_a_whole_in_its_order,
        push::everything_about_a_message_arrives_as_it_was_pushed,
        push::any_bytes_come_out_as_they_went_in,
        keys::a_key_is_done_from_completion_until_its_window_has_passed,
        keys::effect_key_and_acknowledgement_commit_together_or_not_at_all,
        claims::claims_take_the_highest_priority_first,
        claims::one_exchange_settles_a_batch_and_claims_the_next,
        claims::a_waiting_claim_is_served_by_a_push,
        settle::a_settlement_under_a_lost_lease_changes_nothing,
        leases::a_lease_that_ran_out_brings_the_message_back_counted,
        crashes::a_lone_killer_is_quarantined_after_exactly_its_budget,
        streams::a_quarantined_head_holds_a_strict_stream,
        streams::a_replayed_head_takes_its_old_place,
        desk::a_replay_with_other_bytes_keeps_the_original_ones,
        quarantine::the_history_survives_replays_and_crashes,
    );
}

#[test]
fn many_instances_share_a_queue_through_a_pooler_with_two_connections() {
    let pooler = Pooler::start();
    block(async {
        let schema = Schema::create().await;
        let mut tasks = Vec::new();
        for number in 0..4 {
            let options = schema.options().connections(3).listen(false);
            let store = PostgresStore::connect(&pooler.address, options).await.unwrap();
            if number == 0 {
                store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
                push_many(&store, (0..400).map(|n| message(n.to_string())).collect()).await;
            }
            tasks.push(RUNTIME.spawn(async move {
                let (mut seen, mut settlements) = (0, Vec::new());
                loop {
                    let exchange = Exchange { settlements, claim: Some(claim(store.process(), 7)) };
                    let held = store.exchange(exchange).await.unwrap().deliveries;
                    settlements = held.iter().map(|one| Settlement::complete(one.token())).collect();
                    seen += held.len();
                    if held.is_empty() && store.stats(&queue()).await.unwrap().completed == 400 {
                        return seen;
                    }
                }
            }));
        }
        let mut seen = 0;
        for task in tasks {
            seen += task.await.unwrap();
        }
        assert_eq!(seen, 400, "each was delivered once");
    });
}
