//! The smallest service: a queue, a message, a worker.
//!
//! `cargo run --example hello`

use std::error::Error;

use sickbay::{Context, NewMessage, QueueName, QueuePolicy, Sickbay};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let bay = Sickbay::open(folder.path().join("hello.db"))?;
    let greetings = QueueName::new("greetings")?;
    bay.define_queue(&greetings, QueuePolicy::default()).await?;
    bay.push(["Ada", "Grace", "Edsger"].map(|name| NewMessage::new(greetings.clone(), name))).await?;

    let handler = async |ctx: Context| println!("hello, {}", String::from_utf8_lossy(ctx.payload()));
    let running = bay.worker(&greetings, handler)?.start();
    bay.drained(&greetings).await?;
    running.stop().await;
    Ok(())
}
