//! A service that pushes and works at the same time, for as long as it lives. Kill it as you like: what it
//! said was pushed is there when it comes back, and is handled exactly once.
//!
//! `cargo run --example busy -- busy.db` prints `pushed ID` when a push is durable.

use std::error::Error;
use std::io::Write;

use sickbay::{Context, Done, NewMessage, QueueName, QueuePolicy, Sickbay, SqliteEffect, Verdict};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("say which store: busy STORE")?;
    let bay = Sickbay::open(path)?;
    let queue = QueueName::new("busy")?;
    // Whoever kills this process means the process, not the message in its hands.
    let policy = QueuePolicy { crash_budget: 1_000_000, ..QueuePolicy::default() };
    bay.define_queue(&queue, policy).await?;
    let handler = async |ctx: Context| {
        let (number, attempt) = (ctx.id().to_string(), ctx.attempt());
        let effect = SqliteEffect::new(move |connection| {
            connection.execute("CREATE TABLE IF NOT EXISTS handled (id TEXT, attempt INTEGER)", [])?;
            connection.execute("INSERT INTO handled VALUES (?1, ?2)", (number, attempt)).map(drop)
        });
        Verdict::Done(Done { effect: Some(effect) })
    };
    let _running = bay.worker(&queue, handler)?.concurrency(8).start();
    for round in 0u64.. {
        let batch = (0..round % 7 + 1).map(|n| NewMessage::new(queue.clone(), format!("{round}.{n}")));
        let pushed = bay.push(batch).await?;
        let mut out = std::io::stdout().lock();
        for one in pushed {
            writeln!(out, "pushed {}", one.id())?;
        }
        out.flush()?;
    }
    Ok(())
}
