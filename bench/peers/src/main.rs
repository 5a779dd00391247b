//! Measures other queues on the work that Sickbay is measured on, each at its best setting, and prints
//! one JSON document.
//!
//! ```text
//! peers drain   --count 50000 --dir DIR --pg postgres://… --amqp amqp://… [--only effectum,rabbitmq] [--rounds 3]
//! peers latency --seconds 5   --dir DIR …
//! ```
//!
//! `drain`: messages are stored first, then a worker with a no-op handler that parses the JSON runs; the
//! clock stops when the last acknowledgement is committed. `latency`: one producer at low load, from just
//! before the enqueue call to the start of the handler. Nothing here starts a server. A peer that cannot be
//! measured is said to standard error and in the document, and the others go on.

mod args;
mod database;
mod load;
mod peer;

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::args::{Args, Kind};
use crate::load::{Drained, Latencies};
use crate::peer::Peer;

/// The same as Sickbay is measured with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse(std::env::args().skip(1))?;
    let mut document = Map::new();
    for peer in args.peers()? {
        let measured = match args.kind {
            Kind::Drain => drain(peer, &args).await,
            Kind::Latency => latency(peer, &args).await,
        };
        let figures = measured.unwrap_or_else(|error| json!({"error": format!("{error:#}")}));
        match figures.get("error") {
            Some(error) => eprintln!("!!! {peer} WAS NOT MEASURED: {error}"),
            None => eprintln!("{peer}: {figures}"),
        }
        document.insert(peer.to_string(), figures);
    }
    println!("{}", Value::Object(document));
    Ok(())
}

/// The fastest of all rounds: a peer is not to lose for a disturbance.
async fn drain(peer: Peer, args: &Args) -> Result<Value> {
    let mut best: Option<Drained> = None;
    for round in 0..args.rounds {
        let drained = peer.drain(args).await?;
        eprintln!(
            "{peer}, round {round}: {:.0}/s (handlers {:.0}/s)",
            drained.drain_per_s(),
            drained.handled_per_s()
        );
        if best.as_ref().is_none_or(|best| drained.drain_per_s() > best.drain_per_s()) {
            best = Some(drained);
        }
    }
    let best = best.ok_or_else(|| anyhow::anyhow!("--rounds must be at least 1"))?;
    Ok(json!({
        "version": peer.version(),
        "settings": peer.settings(),
        "drain_per_s": best.drain_per_s().round(),
        "handled_per_s": best.handled_per_s().round(),
        "enqueue_per_s": best.enqueue_per_s().round(),
        "count": best.count,
        "rounds": args.rounds,
    }))
}

/// All samples of all rounds together.
async fn latency(peer: Peer, args: &Args) -> Result<Value> {
    let mut latencies = Latencies::default();
    for _ in 0..args.rounds {
        latencies.append(peer.latency(args).await?);
    }
    Ok(json!({
        "p50_ms": latencies.percentile_ms(0.50),
        "p99_ms": latencies.percentile_ms(0.99),
        "samples": latencies.len(),
        "missing": latencies.missing,
    }))
}
