//! On PostgreSQL: whether the cost of a message grows with what lies around it, and what failures cost.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Map, Value, json};
use sickbay_core::QueuePolicy;
use sickbay_core::port::Overview;

use crate::growth::{Scale, prepare};
use crate::lifecycle::rate_on;
use crate::load::fill;
use crate::median;
use crate::postgres::store;
use crate::work::{Arrival, failing, failure_time_on};

const FULL: Scale = Scale { measured: 100_000, ..crate::FULL };
const QUICK: Scale =
    Scale { backlog: 100_000, dead: 20_000, followers: 20_000, processed: 50_000, measured: 20_000 };

/// The rate in each situation, against the rate with a thousand messages just before and after.
pub(crate) async fn growth(quick: bool) -> Result<Value> {
    let scale = if quick { QUICK } else { FULL };
    let mut ratios = Map::new();
    for situation in ["backlog", "dead", "stream", "processed"] {
        ratios.insert(situation.to_owned(), json!(ratio(situation, scale).await?));
    }
    ratios.insert("pinned".to_owned(), json!(pinned(if quick { 10 } else { 60 }, scale.measured).await?));
    Ok(Value::Object(ratios))
}

/// The rate at the end of so many seconds in which somebody keeps a transaction open, so that nothing can be vacuumed,
/// against the rate at their beginning.
pub(crate) async fn pinned(seconds: u64, count: u64) -> Result<f64> {
    let store = store("pinned", QueuePolicy::default()).await?;
    fill(&store, 1000).await?;
    let other = crate::postgres::connect(&crate::postgres::address()?).await?;
    other.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()").await?;
    let begin = Instant::now();
    let mut rates = Vec::new();
    while begin.elapsed() < Duration::from_secs(seconds) {
        rates.push(rate_on(&store, count, 100).await?);
    }
    other.batch_execute("COMMIT").await?;
    anyhow::ensure!(store.stats(&crate::load::queue()).await?.adds_up(), "the counts do not add up");
    store.close().await?;
    eprintln!(
        "while a transaction was open, per second: {:?}",
        rates.iter().map(|rate| rate.round()).collect::<Vec<_>>()
    );
    let part = rates.len().div_ceil(5);
    let last = rates.split_off(rates.len() - part);
    rates.truncate(part);
    Ok(median(last) / median(rates))
}

async fn ratio(situation: &str, scale: Scale) -> Result<f64> {
    let full = store("growth", QueuePolicy::default()).await?;
    prepare(&full, situation, scale).await?;
    let mut empties = vec![empty(scale.measured).await?];
    let mut rates = Vec::new();
    for _ in 0..2 {
        rates.push(rate_on(&full, scale.measured, 100).await?);
        empties.push(empty(scale.measured).await?);
    }
    full.close().await?;
    Ok(rates.into_iter().fold(0.0, f64::max) / median(empties))
}

async fn empty(count: u64) -> Result<f64> {
    let store = store("empty", QueuePolicy::default()).await?;
    fill(&store, 1000).await?;
    let rate = rate_on(&store, count, 100).await?;
    store.close().await?;
    Ok(rate)
}

/// Time with every tenth message failing three times, against none, in rounds that take turns.
pub(crate) async fn failures(quick: bool) -> Result<Value> {
    let (rounds, count) = if quick { (3, 6000) } else { (5, 60_000) };
    let (mut ratios, mut detail) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut seconds = [0.0; 2];
        for (poison, time) in [false, true].into_iter().zip(&mut seconds) {
            let store = store("failures", failing()).await?;
            *time = failure_time_on(&store, count, poison, Arrival::Service).await?;
            store.close().await?;
        }
        ratios.push(seconds[1] / seconds[0]);
        detail.push(json!({"healthy_s": seconds[0], "failing_s": seconds[1]}));
    }
    Ok(json!({"ratio": median(ratios), "rounds": detail}))
}
