//! A future whose panics are answers, also when it panics while it is dropped.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::handler::BoxFuture;

/// Runs a future; `Err` holds the words of its panic.
pub(crate) struct Guarded<'a, T> {
    inner: Option<BoxFuture<'a, T>>,
}

impl<'a, T> Guarded<'a, T> {
    pub(crate) fn new(inner: BoxFuture<'a, T>) -> Self {
        Self { inner: Some(inner) }
    }

    /// What is left is dropped here, so that a panic in it ends here too.
    fn drop_inner(&mut self) {
        let inner = self.inner.take();
        let _ = caught(|| drop(inner));
    }
}

impl<T> Future for Guarded<'_, T> {
    type Output = Result<T, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(inner) = self.inner.as_mut() else {
            return Poll::Ready(Err("it was asked again after its answer".to_owned()));
        };
        match caught(|| inner.as_mut().poll(cx)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(answer)) => {
                self.drop_inner();
                Poll::Ready(Ok(answer))
            }
            Err(words) => {
                self.drop_inner();
                Poll::Ready(Err(words))
            }
        }
    }
}

impl<T> Drop for Guarded<'_, T> {
    fn drop(&mut self) {
        self.drop_inner();
    }
}

/// Calls a function; `Err` holds the words of its panic.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(words)
}

fn words(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => match panic.downcast::<&'static str>() {
            Ok(text) => (*text).to_owned(),
            Err(other) => {
                // Dropping a stranger's value could panic again.
                std::mem::forget(other);
                "(a panic without words)".to_owned()
            }
        },
    }
}
