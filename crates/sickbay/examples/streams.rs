//! Messages that share a stream key are handled in order, one at a time; a failing one holds up its own
//! stream and nobody else's.
//!
//! `cargo run --example streams`

use std::error::Error;
use std::time::Duration;

use sickbay::{Context, NewMessage, QueueName, QueuePolicy, RetryPolicy, Sickbay, StreamKey};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let bay = Sickbay::open(folder.path().join("accounts.db"))?;
    let accounts = QueueName::new("accounts")?;
    let policy = QueuePolicy::with_retry(RetryPolicy::cooldown(3, Duration::from_millis(200)));
    bay.define_queue(&accounts, policy).await?;
    let mut batch = Vec::new();
    for step in ["opened", "credited", "closed"] {
        for account in ["ada", "bob"] {
            let message = NewMessage::new(accounts.clone(), format!("{account} {step}"));
            batch.push(message.stream(StreamKey::new(account)?));
        }
    }
    bay.push(batch).await?;

    // Ada's first message fails once: her account waits for it, Bob's goes on.
    let handler = async |ctx: Context| -> Result<(), std::io::Error> {
        let text = String::from_utf8_lossy(ctx.payload()).into_owned();
        if text == "ada opened" && ctx.attempt() == 1 {
            return Err(std::io::Error::other("bank north: connection reset"));
        }
        println!("{text}");
        Ok(())
    };
    let running = bay.worker(&accounts, handler)?.start();
    bay.drained(&accounts).await?;
    running.stop().await;
    Ok(())
}
