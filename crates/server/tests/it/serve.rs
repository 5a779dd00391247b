//! Where the owner answers.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use sickbay_core::QueuePolicy;
use sickbay_core::port::{Desk, Store};
use sickbay_server::{Api, Client, Listener, serve, socket_path};
use sickbay_store::MemoryStore;
use sickbay_testkit::ManualClock;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn api() -> Api {
    let store = Arc::new(MemoryStore::new(Arc::new(ManualClock::new())));
    store.define_queue(&"orders".try_into().unwrap(), QueuePolicy::default()).await.unwrap();
    Api::new(store as Arc<dyn Store>)
}

#[tokio::test]
async fn the_socket_is_for_its_user_alone_and_goes_with_its_owner() {
    let folder = TempDir::new().unwrap();
    let path = socket_path(folder.path().join("store.db"));
    assert!(path.ends_with("store.db.sock"));
    let serving = serve(&api().await, Listener::unix(&path).await.unwrap());
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(Client::unix(&path).health().await.unwrap().queues, 1);
    serving.stop().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_that_a_dead_owner_left_is_replaced_and_a_living_ones_is_not() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("s.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "nobody answers there, but the file is there");
    let serving = serve(&api().await, Listener::unix(&path).await.unwrap());
    let inode = std::fs::metadata(&path).unwrap().ino();
    let problem = Listener::unix(&path).await.err().unwrap();
    assert_eq!(problem.code, "SB0031");
    assert!(problem.detail.contains("another process answers there"), "{problem}");
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);
    Client::unix(&path).health().await.unwrap();
    serving.stop().await;
}

#[tokio::test]
async fn an_owner_that_goes_late_leaves_the_socket_of_the_next_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("s.sock");
    let old = serve(&api().await, Listener::unix(&path).await.unwrap());
    std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    let new = serve(&api().await, Listener::unix(&path).await.unwrap());
    old.stop().await;
    Client::unix(&path).health().await.unwrap();
    new.stop().await;
}

#[tokio::test]
async fn a_path_longer_than_a_sockets_may_be_works_too() {
    let folder = TempDir::new().unwrap();
    let deep = folder.path().join("d".repeat(120)).join("e".repeat(120));
    std::fs::create_dir_all(&deep).unwrap();
    let path = deep.join("store.db.sock");
    let serving = serve(&api().await, Listener::unix(&path).await.unwrap());
    Client::unix(&path).health().await.unwrap();
    serving.stop().await;
    assert!(!path.exists());
    let problem = Listener::unix(folder.path().join("n".repeat(150))).await.err().unwrap();
    assert_eq!(problem.code, "SB0031");
    let problem = Listener::unix(folder.path().join("nowhere/s.sock")).await.err().unwrap();
    assert_eq!(problem.code, "SB0031");
}

#[tokio::test]
async fn only_this_machine_is_answered_by_tcp() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let problem = Listener::tcp(address.parse().unwrap()).await.err().unwrap();
        assert_eq!(problem.code, "SB0030", "{address}");
    }
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address().unwrap();
    let serving = serve(&api().await, listener);
    let client = Client::tcp(&format!("http://{address}/")).unwrap();
    assert_eq!(client.health().await.unwrap().status, "ok");
    serving.stop().await;
    assert!(client.health().await.unwrap_err().is_owner_gone());
    for bad in ["127.0.0.1:80", "https://127.0.0.1:80", "http://127.0.0.1", "http://", "http://a b:1"] {
        assert_eq!(Client::tcp(bad).err().unwrap().code, "SB0023", "{bad}");
    }
}

async fn raw(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn what_a_web_page_makes_a_browser_send_is_refused() {
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address().unwrap();
    let serving = serve(&api().await, listener);
    let head = "GET /v1/health HTTP/1.1\r\nConnection: close\r\n";
    for headers in [
        "Host: evil.example",
        "Host: localhost\r\nOrigin: https://evil.example",
        "Host: localhost\r\nOrigin: null",
    ] {
        let answer = raw(address, &format!("{head}{headers}\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("SB0033"), "{answer}");
    }
    let answer =
        raw(address, &format!("{head}Host: {address}\r\nOrigin: http://localhost:3000\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    serving.stop().await;
}

#[tokio::test]
async fn what_is_no_http_ends_its_own_connection_only() {
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address().unwrap();
    let serving = serve(&api().await, listener);
    for noise in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "POST /v1/push HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "\u{16}\u{3}\u{1}\r\n\r\n",
    ] {
        let answer = raw(address, noise).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    Client::tcp(&format!("http://{address}")).unwrap().health().await.unwrap();
    serving.stop().await;
}
