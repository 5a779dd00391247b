//! Waiting for a future on this thread, whatever runs around it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::run::now;

/// No call takes so long. One that is not answered by then never will be.
const ANSWER_MAX: Duration = Duration::from_secs(120);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end. Most are ready at once and cost nothing.
///
/// # Panics
///
/// If it does not end within two minutes.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    wait_for(future, ANSWER_MAX)
}

fn wait_for<T>(future: impl Future<Output = T>, limit: Duration) -> T {
    let _entered = crate::stores::enter();
    let mut future = pin!(future);
    if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return answer;
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let started = now();
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        let waited = started.elapsed();
        assert!(waited < limit, "the store has not answered a call for {} s", waited.as_secs());
        std::thread::park_timeout(limit - waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "has not answered a call")]
    fn a_call_that_is_never_answered_ends_the_run() {
        wait_for(std::future::pending::<()>(), Duration::from_millis(20));
    }
}
