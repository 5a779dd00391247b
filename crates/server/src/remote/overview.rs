//! Views.

use async_trait::async_trait;
use sickbay_core::id::IdPrefix;
use sickbay_core::port::Overview;
use sickbay_core::quarantine::{DeadLetter, MessageView, Page, PageRequest, QuarantineFilter};
use sickbay_core::stats::{ProcessView, QueueStats, StreamDetail, StreamView};
use sickbay_core::{Key, QueueName, QueuePolicy, StoreError, StreamKey};

use super::RemoteStore;
use super::deliveries::strange;
use crate::wire::exchange::AskDone;
use crate::wire::quarantine::Query;

#[async_trait]
impl Overview for RemoteStore {
    async fn queues(&self) -> Result<Vec<(QueueName, QueuePolicy)>, StoreError> {
        let queues = self.client.queues().await?.queues;
        Ok(queues.into_iter().map(|queue| (queue.name, queue.policy.into())).collect())
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats, StoreError> {
        Ok(self.client.queue(queue).await?.stats.into())
    }

    async fn find(&self, prefix: IdPrefix) -> Result<Option<MessageView>, StoreError> {
        match self.client.message(&text_of(prefix)).await {
            Ok(view) => view.into_core().map(Some).map_err(|error| strange(&error).into()),
            Err(problem) if problem.code == "SB0028" => Ok(None),
            Err(problem) => Err(problem.into()),
        }
    }

    async fn quarantine(
        &self,
        filter: &QuarantineFilter,
        page: PageRequest,
    ) -> Result<Page<DeadLetter>, StoreError> {
        let filter = filter.clone().into();
        let query = Query { filter, rows: Some(page.rows_max), after: page.after, count: false };
        let page = self.client.quarantine(&query).await?;
        let next = page.next.map(|next| next.parse()).transpose();
        let next = next.map_err(|error| StoreError::from(strange(&error)))?;
        Ok(Page { rows: page.rows.into_iter().map(Into::into).collect(), next })
    }

    async fn quarantine_count(&self, filter: &QuarantineFilter) -> Result<u64, StoreError> {
        let query = Query { filter: filter.clone().into(), rows: Some(0), after: None, count: true };
        let page = self.client.quarantine(&query).await?;
        page.count.ok_or_else(|| strange(&"no count came").into())
    }

    async fn streams(&self, queue: &QueueName, rows_max: u32) -> Result<Vec<StreamView>, StoreError> {
        let streams = self.client.streams(queue, rows_max).await?.streams;
        Ok(streams.into_iter().map(Into::into).collect())
    }

    async fn stream(
        &self,
        queue: &QueueName,
        key: &StreamKey,
        rows_max: u32,
    ) -> Result<Option<StreamDetail>, StoreError> {
        match self.client.stream(queue, key, rows_max).await {
            Ok(detail) => Ok(Some(detail.into())),
            Err(problem) if problem.code == "SB0040" => Ok(None),
            Err(problem) => Err(problem.into()),
        }
    }

    async fn processes(&self) -> Result<Vec<ProcessView>, StoreError> {
        let processes = self.client.processes().await?.processes.into_iter();
        processes.map(|process| process.try_into().map_err(|error| strange(&error).into())).collect()
    }

    async fn is_done(&self, queue: &QueueName, key: &Key) -> Result<bool, StoreError> {
        let ask = AskDone { queue: queue.clone(), key: key.clone() };
        Ok(self.client.is_done(&ask).await?.done)
    }
}

/// The characters that a prefix was made of: of the first id that begins with them, as many as leave so many
/// candidates.
fn text_of(prefix: IdPrefix) -> String {
    const LAST: u64 = (1 << 60) - 1;
    let bits = 64 - prefix.candidates(u64::MAX).ilog2();
    let length = (bits / 5) as usize;
    let first = prefix.numbers(LAST).next().map(|id| id.to_string());
    first.unwrap_or_else(|| "0".repeat(12)).chars().take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_gives_its_text_back() {
        for text in
            ["0", "z", "8w", "000", "8w3kq0v7", "8w3kq0v7m2x", "8w3kq0v7m2xn", "000000000000", "zzzzzzzzzzzz"]
        {
            assert_eq!(text_of(text.parse().unwrap()), text);
        }
    }
}
