//! Encrypted connections to a server whose certificate a private authority signed.

use std::path::Path;
use std::process::{Command, Stdio};

use sickbay_core::port::{Desk, Overview};
use sickbay_core::{ErrorKind, QueuePolicy};
use sickbay_store::{PostgresOptions, PostgresStore};
use sickbay_testkit::cluster::Cluster;

use super::block;
use super::many::{message, push_many, queue};

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    command.args(arguments.split(' ')).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().is_ok_and(|status| status.success()), "openssl {arguments}");
}

/// A new authority; answers its certificate.
fn authority(folder: &Path, name: &str) -> Vec<u8> {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(folder, &format!("req -x509 {key} -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name}"));
    std::fs::read(folder.join(format!("{name}.pem"))).unwrap()
}

/// A server with a certificate for its address, signed by the first of two authorities; both certificates.
fn encrypted() -> (Cluster, Vec<u8>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (right, wrong) = (authority(path, "right"), authority(path, "wrong"));
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(path, &format!("req {key} -keyout server.key -out server.csr -subj /CN=server"));
    std::fs::write(path.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let sign =
        "x509 -req -in server.csr -CA right.pem -CAkey right.key -CAcreateserial -out server.pem -days 2";
    openssl(path, &format!("{sign} -extfile names"));
    let read = |name: &str| std::fs::read(path.join(name)).unwrap();
    let settings = ["ssl=on", "ssl_cert_file=../server.pem", "ssl_key_file=../server.key"];
    let files = [("server.pem", read("server.pem")), ("server.key", read("server.key"))];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    (Cluster::start_with(&settings, &files), right, wrong)
}

#[test]
fn a_private_authority_is_trusted_when_it_is_named_and_no_other_is() {
    let (cluster, right, wrong) = encrypted();
    let address = format!("{}?sslmode=require", cluster.address());
    block(async {
        let trusting = PostgresOptions::default().root_certificates(&right).unwrap();
        PostgresStore::migrate(&address, &trusting).await.unwrap();
        let store = PostgresStore::connect(&address, trusting).await.unwrap();
        store.define_queue(&queue(), QueuePolicy::default()).await.unwrap();
        push_many(&store, vec![message("a")]).await;
        assert_eq!(store.stats(&queue()).await.unwrap().pending, 1);
        let client = super::connect(&cluster.address()).await;
        let encrypted = "SELECT count(*) FROM pg_stat_ssl WHERE ssl";
        let encrypted: i64 = client.query_one(encrypted, &[]).await.unwrap().get(0);
        assert!(encrypted > 0, "the store's connections are encrypted");
        let others =
            [PostgresOptions::default().root_certificates(&wrong).unwrap(), PostgresOptions::default()];
        for options in others {
            let error = PostgresStore::connect(&address, options).await.err().unwrap();
            assert_eq!((error.kind(), error.code()), (ErrorKind::Stop, "SB0066"), "{error}");
        }
        let anybody = PostgresOptions::default().accept_any_certificate(true);
        assert!(PostgresStore::connect(&address, anybody).await.is_ok(), "someone said so in so many words");
    });
}
