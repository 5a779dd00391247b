//! What pushers and workers call.

use std::sync::Arc;

use async_trait::async_trait;
use sickbay_core::decide::Decision;
use sickbay_core::port::{Adoption, Deliveries, Exchange, Exchanged, ProcessId, Pushed, Pusher, Renewal};
use sickbay_core::text::{ERROR_BYTES_MAX, OUTPUT_BYTES_MAX, clean_error};
use sickbay_core::{ErrorKind, LeaseToken, NewMessage, QueueName, QueuePolicy, Settlement, StoreError};

use super::RemoteStore;
use crate::wire::Problem;
use crate::wire::delivery::Extend;
use crate::wire::exchange::{self, Adopt, AskPolicy, Died};
use crate::wire::message::{Push, PushAnswer};
use crate::wire::problem::Reaction;

#[async_trait]
impl Pusher for RemoteStore {
    async fn push(&self, messages: Vec<NewMessage>) -> Result<Vec<Pushed>, StoreError> {
        let numbers = self.client.push_numbers(&Push::from(messages)).await?;
        numbers.into_core().ok_or_else(|| strange(&"a number of no message came").into())
    }

    async fn adopt(&self, adoptions: Vec<Adoption>) -> Result<Vec<Pushed>, StoreError> {
        let mut adoptions = adoptions;
        adoptions.iter_mut().for_each(|adoption| shorten(&mut adoption.decision));
        let adopt = Adopt { adoptions: adoptions.into_iter().map(Into::into).collect() };
        Ok(pushed(self.client.adopt(&adopt).await?))
    }
}

fn pushed(answer: PushAnswer) -> Vec<Pushed> {
    answer.pushed.into_iter().map(Into::into).collect()
}

#[async_trait]
impl Deliveries for RemoteStore {
    async fn exchange(&self, mut exchange: Exchange) -> Result<Exchanged, StoreError> {
        if exchange.settlements.iter().any(|settlement| settlement.effect.is_some()) {
            let text = "a handler's own writes cannot travel to the process that owns the store";
            return Err(StoreError::new(ErrorKind::Invalid, "SB0015", text));
        }
        if exchange.claim.as_ref().is_some_and(|claim| claim.process == self.process) {
            self.presence.ensure().await?;
        }
        exchange.settlements.iter_mut().for_each(shorten_settlement);
        let exchange = exchange::Exchange {
            settlements: exchange.settlements.into_iter().map(Into::into).collect(),
            claim: exchange.claim.map(Into::into),
        };
        let exchanged = self.client.exchange(&exchange).await?;
        exchanged.into_core().map_err(|error| strange(&error).into())
    }

    async fn renew(&self, renewal: Renewal) -> Result<Vec<LeaseToken>, StoreError> {
        let tokens = renewal.tokens.into_iter().map(Into::into).collect();
        let extended = self.client.renew(&Extend { tokens, lease: renewal.lease.into() }).await?;
        Ok(extended.lost.into_iter().map(Into::into).collect())
    }

    async fn process_died(&self, process: ProcessId, evidence: String) -> Result<u64, StoreError> {
        let died = Died { process: process.0, evidence: shortened(evidence) };
        Ok(self.client.process_died(&died).await?.count)
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        self.client.sweep().await?;
        Ok(())
    }

    /// The same one as last time, as long as it is in force: workers compile its rules once.
    async fn policy(&self, queue: &QueueName) -> Result<Arc<QueuePolicy>, StoreError> {
        let ask = async |known| self.client.policy(&AskPolicy { queue: queue.clone(), known }).await;
        let policy = self.policies.get(queue, ask).await?;
        policy.ok_or_else(|| strange(&"no policy came").into())
    }
}

pub(super) fn strange(error: &dyn std::fmt::Display) -> Problem {
    Problem::new(Reaction::Stop, "SB0032", format!("an answer is not what was expected: {error}"))
}

/// The store cuts error texts anyway; what it would throw away need not travel.
fn shorten_settlement(settlement: &mut Settlement) {
    shorten(&mut settlement.decision);
    if let Some(output) = &mut settlement.output
        && output.len() > 2 * OUTPUT_BYTES_MAX
    {
        let mut from = output.len() - 2 * OUTPUT_BYTES_MAX;
        while !output.is_char_boundary(from) {
            from += 1;
        }
        output.drain(..from);
    }
}

fn shorten(decision: &mut Decision) {
    if let Decision::Retry { failure, .. } | Decision::Quarantine { failure, .. } = decision {
        failure.error = shortened(std::mem::take(&mut failure.error));
    }
}

/// Leaves a text that the store keeps as it is: cut, with the number of missing bytes at its end.
fn shortened(text: String) -> String {
    if text.len() <= ERROR_BYTES_MAX {
        return text;
    }
    let cleaned = clean_error(&text);
    let (kept, suffix) = cleaned.rsplit_once('…').unwrap_or((&cleaned, ""));
    let mut end = kept.len().min(ERROR_BYTES_MAX - 100);
    while !kept.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…{suffix}", &kept[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_text_is_not_cut_again() {
        for text in ["x".repeat(ERROR_BYTES_MAX + 1), "ü\0".repeat(1 << 20), "…".repeat(1 << 20)] {
            let short = shortened(text);
            assert!(short.ends_with("more bytes)") && short.len() <= ERROR_BYTES_MAX);
            assert_eq!(clean_error(&short), short);
        }
        assert_eq!(shortened("boom\0".to_owned()), "boom\0");
    }
}
