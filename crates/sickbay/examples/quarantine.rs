//! A poisonous message is set aside, looked at, mended and sent back; the one behind it is not held up.
//!
//! `cargo run --example quarantine`

use std::error::Error;

use sickbay::{
    Context, NewMessage, PageRequest, QuarantineFilter, QueueName, QueuePolicy, Replay, Sickbay, typed,
};

#[derive(serde::Deserialize)]
struct Order {
    amount: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let bay = Sickbay::open(folder.path().join("orders.db"))?;
    let orders = QueueName::new("orders")?;
    bay.define_queue(&orders, QueuePolicy::default()).await?;
    bay.push([r#"{"amount": -5}"#, r#"{"amount": 7}"#].map(|body| NewMessage::new(orders.clone(), body)))
        .await?;

    let handler = typed(|order: Order, ctx: Context| async move {
        println!("{} is worth {}", ctx.id().short(), order.amount);
    });
    let running = bay.worker(&orders, handler)?.start();
    bay.drained(&orders).await?;

    let page = bay.store().quarantine(&QuarantineFilter::default(), PageRequest::default()).await?;
    for dead in &page.rows {
        println!(
            "{} is set aside: {} ({}, signature {})",
            dead.id.short(),
            dead.error,
            dead.reason,
            dead.signature
        );
        let mended = Replay { payload: Some(r#"{"amount": 5}"#.into()), ..Replay::raw(dead.id) };
        bay.store().replay(vec![mended]).await?;
    }
    bay.drained(&orders).await?;
    running.stop().await;
    assert_eq!(bay.store().stats(&orders).await?.completed, 2);
    Ok(())
}
