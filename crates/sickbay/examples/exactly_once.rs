//! Effects that happen exactly once: the handler's own writes, the idempotency key and the acknowledgement
//! commit together. Pushing the same event again changes nothing.
//!
//! `cargo run --example exactly_once`

use std::error::Error;

use sickbay::{
    Context, Done, Key, NewMessage, Pushed, QueueName, QueuePolicy, Sickbay, SqliteEffect, Verdict,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("payments.db");
    let bay = Sickbay::open(&path)?;
    let payments = QueueName::new("payments")?;
    bay.define_queue(&payments, QueuePolicy::default()).await?;

    let handler = async |ctx: Context| -> Result<Verdict, std::num::ParseIntError> {
        let cents: i64 = String::from_utf8_lossy(ctx.payload()).parse()?;
        let effect = SqliteEffect::new(move |connection| {
            connection.execute("CREATE TABLE IF NOT EXISTS ledger (cents INTEGER)", [])?;
            connection.execute("INSERT INTO ledger VALUES (?1)", [cents]).map(drop)
        });
        Ok(Verdict::Done(Done { effect: Some(effect) }))
    };
    let running = bay.worker(&payments, handler)?.start();

    for event in ["evt-1", "evt-2", "evt-1"] {
        let message = NewMessage::new(payments.clone(), "1250").key(Key::new(event)?);
        match bay.push([message]).await?[0] {
            Pushed::New(id) => println!("{event} is message {}", id.short()),
            Pushed::Duplicate(id) => println!("{event} was message {} already", id.short()),
        }
        bay.drained(&payments).await?;
    }
    running.stop().await;
    drop(bay);
    let ledger = rusqlite::Connection::open(path)?;
    let sum: i64 = ledger.query_row("SELECT sum(cents) FROM ledger", [], |row| row.get(0))?;
    println!("the ledger holds {sum} cents");
    assert_eq!(sum, 2500);
    Ok(())
}
