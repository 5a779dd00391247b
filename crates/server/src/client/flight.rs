//! An exchange on its way. Whoever stops waiting for it must not lose what it brings.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::Method;
use tokio::runtime::Handle;

use super::connection::Unanswered;
use super::pool::TRIES_MAX;
use super::{Answered, Call, Client, Connection};
use crate::wire::Problem;
use crate::wire::exchange::{Decided, Decision, Exchange, Exchanged};

type Outcome = Result<(Answered, Connection), Unanswered>;

impl Client {
    /// Settles and claims. If the future is dropped, a claim that waits is called off, and deliveries
    /// that come nevertheless are given back.
    pub async fn exchange(&self, exchange: &Exchange) -> Result<Exchanged, Problem> {
        let call = Call::new(Method::POST, PATH, exchange)?;
        let Some(pool) = self.pool().filter(|_| exchange.claim.is_some()) else {
            return self.call(call).await;
        };
        let waits = exchange.settlements.is_empty();
        let mut request = pool.request(call)?;
        for _ in 0..TRIES_MAX {
            let mut connection = pool.take().await?;
            let hang_up: Box<dyn FnOnce() + Send> = Box::new(connection.hang_up());
            let asked = async move { connection.ask(request).await.map(|answered| (answered, connection)) };
            let flight = Flight {
                asked: Some(Box::pin(asked)),
                hang_up: waits.then_some(hang_up),
                client: self.clone(),
                handle: pool.handle().clone(),
            };
            match flight.await {
                Ok((answered, connection)) => {
                    pool.put_back(connection);
                    return answered.read();
                }
                Err(Unanswered::NotSent(again)) => request = *again,
                Err(Unanswered::Lost(problem)) => return Err(problem),
            }
        }
        Err(Problem::gone("it hangs up before it is asked"))
    }
}

const PATH: &str = "/v1/internal/exchange";

struct Flight {
    asked: Option<Pin<Box<dyn Future<Output = Outcome> + Send>>>,
    /// Calls a claim off that waits.
    hang_up: Option<Box<dyn FnOnce() + Send>>,
    client: Client,
    handle: Handle,
}

impl Future for Flight {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let Some(asked) = self.asked.as_mut() else { return Poll::Pending };
        let outcome = std::task::ready!(asked.as_mut().poll(context));
        self.asked = None;
        Poll::Ready(outcome)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        if let Some(hang_up) = self.hang_up.take() {
            hang_up();
        }
        // The owner drops a claim whose caller hung up, unless the answer was on its way already.
        let client = self.client.clone();
        self.handle.spawn(async move {
            let Ok((answered, _)) = asked.await else { return };
            let Ok(exchanged) = answered.read::<Exchanged>() else { return };
            give_back(&client, &exchanged).await;
        });
    }
}

async fn give_back(client: &Client, exchanged: &Exchanged) {
    let released = exchanged.deliveries.iter().map(|delivery| Decided {
        token: delivery.token,
        decision: Decision::Release { after: Default::default() },
        stages: Default::default(),
        signature: None,
        ran: None,
        output: None,
        cascade: false,
    });
    let settlements: Vec<Decided> = released.collect();
    if settlements.is_empty() {
        return;
    }
    let Ok(call) = Call::new(Method::POST, PATH, &Exchange { settlements, claim: None }) else { return };
    if let Some(pool) = client.pool() {
        // If it fails, the leases run out instead.
        drop(pool.send(call).await);
    }
}
