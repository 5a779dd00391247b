//! A queue as an outbox, from the configuration.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::scene::Scene;

/// Where messages go: notes each request, and refuses to publish as often as it was told to.
struct Sink {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Sink {
    fn start(refusals: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = seen.clone();
        // It ends with the program of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A peer that goes away in the middle is none of ours.
                drop(answer(stream, &notes, refusals));
            }
        });
        Self { port, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn answer(stream: TcpStream, notes: &Mutex<Vec<String>>, refusals: usize) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length, mut token) = (String::new(), 0, String::new());
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "x-token" => token = value.trim().to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut notes = notes.lock().unwrap();
    let published = notes.iter().filter(|note| note.contains("/publish")).count();
    notes.push(format!("{token} {path} {}", String::from_utf8_lossy(&body)));
    drop(notes);
    let status = if path == "/publish" && published < refusals { "503 Busy" } else { "200 OK" };
    let mut stream = reader.into_inner();
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

fn config(port: u16) -> String {
    format!(
        "[queues.outbox]\nretry = {{ attempts = 2, cooldown = \"1ms\" }}\n[queues.outbox.relay]\n\
         event_store = \"http://127.0.0.1:{port}/events\"\npublish = \"http://127.0.0.1:{port}/publish\"\n\
         timeout = \"20s\"\nheaders = {{ X-Token = \"t1\" }}\n"
    )
}

#[test]
fn a_relay_stores_then_publishes_and_resumes_after_the_last_finished_stage() {
    let (scene, sink) = (Scene::new(), Sink::start(1));
    scene.write("sickbay.toml", &config(sink.port));
    assert!(scene.ok("check --print").contains("[queues.outbox.relay]"));
    let serve = scene.start("serve");
    assert!(serve.said.contains(&format!(
        "outbox: relay to http://127.0.0.1:{0}/events, then to http://127.0.0.1:{0}/publish, 8 at a time",
        sink.port
    )));
    scene.ok("push outbox order-7");
    scene.until("stats", |stats| stats["queues"][0]["stats"]["completed"] == 1);
    assert_eq!(sink.seen(), ["t1 /events order-7", "t1 /publish order-7", "t1 /publish order-7"]);
}

#[test]
fn what_cannot_be_published_is_quarantined_with_its_stages_and_goes_on_when_it_is_replayed() {
    let (scene, sink) = (Scene::new(), Sink::start(2));
    scene.write("sickbay.toml", &config(sink.port));
    let _serve = scene.start("serve");
    scene.ok("push outbox order-8");
    scene.until("stats", |stats| stats["queues"][0]["stats"]["dead"] == 1);
    let view = scene.json("message show n0z");
    assert!(view["stages"].to_string().contains("EventStored"), "{}", view["stages"]);
    scene.ok("quarantine replay n0z --yes");
    scene.until("stats", |stats| stats["queues"][0]["stats"]["completed"] == 1);
    assert_eq!(sink.seen().iter().filter(|note| note.contains("/events")).count(), 1, "{:?}", sink.seen());
    assert_eq!(sink.seen().len(), 4);
}
