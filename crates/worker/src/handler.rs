//! Handlers: any async function, and wrappers for other shapes.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::answer::{Answer, IntoAnswer};
use crate::context::Context;

/// A future in a box, as handlers return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What runs on each delivery. Every `Fn(Context) -> impl Future` whose output is an [`IntoAnswer`]
/// is one. Panics are caught and are ordinary failures.
pub trait Handler: Send + Sync {
    /// Handles one delivery.
    fn handle(&self, delivery: Context) -> BoxFuture<'_, Answer>;
}

impl<F, R> Handler for F
where
    F: Fn(Context) -> R + Send + Sync,
    R: Future<Output: IntoAnswer> + Send + 'static,
{
    fn handle(&self, delivery: Context) -> BoxFuture<'_, Answer> {
        let work = self(delivery);
        Box::pin(async move { work.await.into_answer() })
    }
}

impl Handler for Arc<dyn Handler> {
    fn handle(&self, delivery: Context) -> BoxFuture<'_, Answer> {
        self.as_ref().handle(delivery)
    }
}

/// A handler of JSON bodies. A body that is no `T` is poison with reason `SerializationError`, and
/// the handler does not run.
pub fn typed<T, F, R>(handler: F) -> impl Handler
where
    T: DeserializeOwned + Send + 'static,
    F: Fn(T, Context) -> R + Send + Sync,
    R: Future<Output: IntoAnswer> + Send + 'static,
{
    Typed { handler, body: PhantomData }
}

struct Typed<T, F> {
    handler: F,
    body: PhantomData<fn(T)>,
}

impl<T, F, R> Handler for Typed<T, F>
where
    T: DeserializeOwned + Send + 'static,
    F: Fn(T, Context) -> R + Send + Sync,
    R: Future<Output: IntoAnswer> + Send + 'static,
{
    fn handle(&self, delivery: Context) -> BoxFuture<'_, Answer> {
        match serde_json::from_slice(delivery.payload()) {
            Ok(body) => {
                let work = (self.handler)(body, delivery);
                Box::pin(async move { work.await.into_answer() })
            }
            Err(error) => Box::pin(std::future::ready(Answer::unreadable(&error))),
        }
    }
}

/// A handler that blocks its thread: it runs on a thread of its own kind. When it overruns its time
/// budget the worker goes on without it, but the thread ends only when the function does; a long one
/// should look at [`Context::is_cancelled`] and [`Context::remaining`].
pub fn blocking<F, A>(handler: F) -> impl Handler
where
    F: Fn(Context) -> A + Send + Sync + 'static,
    A: IntoAnswer,
{
    Blocking { handler: Arc::new(handler) }
}

struct Blocking<F> {
    handler: Arc<F>,
}

impl<F, A> Handler for Blocking<F>
where
    F: Fn(Context) -> A + Send + Sync + 'static,
    A: IntoAnswer,
{
    fn handle(&self, delivery: Context) -> BoxFuture<'_, Answer> {
        let handler = Arc::clone(&self.handler);
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || handler(delivery).into_answer()).await {
                Ok(answer) => answer,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(error) => Answer::Raw(sickbay_core::classify::RawError::new(error.to_string())),
                },
            }
        })
    }
}
