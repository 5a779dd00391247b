//! On PostgreSQL: whether the cost of a message grows with what lies around it, and what failures cost.

use anyhow::Result;
use serde_json::{Map, Value, json};
use sickbay_core::QueuePolicy;

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
    Ok(Value::Object(ratios))
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
