//! The policies of a store in another process. Whoever asks gets the one in force after the question was put; those
//! who ask at the same time share a question, so that many failures at once cost two round trips and not many.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sickbay_core::{QueueName, QueuePolicy};
use tokio::sync::Mutex as Turn;

use crate::wire::Problem;
use crate::wire::exchange::PolicyInForce;

#[derive(Default)]
pub(super) struct Policies {
    by_queue: Mutex<HashMap<QueueName, Arc<Asked>>>,
}

/// What was asked about one queue.
#[derive(Default)]
struct Asked {
    /// How many questions were begun.
    begun: AtomicU64,
    last: Turn<Last>,
}

#[derive(Default)]
struct Last {
    /// The number of the last question that was answered.
    number: u64,
    policy: Option<(String, Arc<QueuePolicy>)>,
}

impl Policies {
    /// The policy in force now, or at some time after this was called. `ask` is told the tag of the one that is known.
    pub(super) async fn get(
        &self,
        queue: &QueueName,
        ask: impl AsyncFnOnce(Option<String>) -> Result<PolicyInForce, Problem>,
    ) -> Result<Option<Arc<QueuePolicy>>, Problem> {
        let asked = self.asked(queue);
        let before = asked.begun.load(Ordering::SeqCst);
        let mut last = asked.last.lock().await;
        if last.number > before
            && let Some((_, policy)) = &last.policy
        {
            // That question was put after this one was: its answer is as good.
            return Ok(Some(Arc::clone(policy)));
        }
        let number = asked.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let known = last.policy.as_ref().map(|(tag, _)| tag.clone());
        let answer = ask(known).await?;
        last.number = number;
        if let Some(policy) = answer.policy {
            last.policy = Some((answer.tag, Arc::new(policy.into())));
        }
        Ok(last.policy.as_ref().map(|(_, policy)| Arc::clone(policy)))
    }

    fn asked(&self, queue: &QueueName) -> Arc<Asked> {
        let mut by_queue = self.by_queue.lock().unwrap_or_else(PoisonError::into_inner);
        match by_queue.get(queue) {
            Some(asked) => Arc::clone(asked),
            None => Arc::clone(by_queue.entry(queue.clone()).or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::wire::policy::Policy;

    fn tagged(attempts: u32) -> PolicyInForce {
        let mut policy = Policy::from(QueuePolicy::default());
        policy.retry.attempts = attempts;
        PolicyInForce { tag: attempts.to_string(), policy: Some(policy) }
    }

    /// Polls all of them in turn, as a runtime does.
    async fn together<F: Future<Output = u32>>(asks: Vec<F>) -> Vec<u32> {
        let mut asks: Vec<_> = asks.into_iter().map(Box::pin).collect();
        let mut answers = vec![None; asks.len()];
        std::future::poll_fn(|cx| {
            for (ask, answer) in asks.iter_mut().zip(&mut answers) {
                if answer.is_none()
                    && let std::task::Poll::Ready(ready) = ask.as_mut().poll(cx)
                {
                    *answer = Some(ready);
                }
            }
            if answers.iter().all(Option::is_some) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
        answers.into_iter().flatten().collect()
    }

    #[tokio::test]
    async fn those_who_ask_at_once_share_a_question_that_was_put_after_theirs() {
        let (policies, queue, asked) = (Policies::default(), QueueName::new("q").unwrap(), Cell::new(0));
        let ask = async || {
            let ask = async |_| {
                asked.set(asked.get() + 1);
                let answer = tagged(asked.get());
                tokio::task::yield_now().await;
                Ok(answer)
            };
            policies.get(&queue, ask).await.unwrap().unwrap().retry.attempts
        };
        let answers = together((0..100).map(|_| ask()).collect()).await;
        assert_eq!(asked.get(), 2, "one for the first, one for all who came while it was on its way");
        assert_eq!((answers[0], &answers[1..]), (1, &[2; 99][..]));
        assert_eq!(ask().await, 3, "what was asked earlier is not good enough later");
    }

    #[tokio::test]
    async fn an_unchanged_policy_does_not_travel_and_stays_the_same_one() {
        let (policies, queue) = (Policies::default(), QueueName::new("q").unwrap());
        let first = policies.get(&queue, async |_| Ok(tagged(7))).await.unwrap().unwrap();
        let ask = async |known: Option<String>| {
            assert_eq!(known.as_deref(), Some("7"));
            Ok(PolicyInForce { tag: "7".to_owned(), policy: None })
        };
        let second = policies.get(&queue, ask).await.unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let failed = policies.get(&queue, async |_| Err(Problem::gone("it is stopping"))).await;
        assert!(failed.is_err(), "an old answer is no answer");
    }
}
