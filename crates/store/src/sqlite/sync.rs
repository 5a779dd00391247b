//! What the writer and its callers share. The tests of interleavings swap it for primitives that let any thread go on
//! at any of them.

#[cfg(not(feature = "interleavings"))]
pub(super) use std::{
    sync::{Mutex, RwLock, mpsc},
    thread,
};
#[cfg(not(feature = "interleavings"))]
pub(super) use tokio::sync::oneshot;

#[cfg(feature = "interleavings")]
pub(super) use shuttle::{
    sync::{Mutex, RwLock},
    thread,
};

/// The same channel; as that of the standard library does, it drops what is in it when nobody will take it any more.
#[cfg(feature = "interleavings")]
pub(super) mod mpsc {
    use std::time::Duration;

    use shuttle::sync::mpsc::{self, RecvError, TryRecvError};

    pub(in crate::sqlite) use mpsc::{RecvTimeoutError, Sender};

    pub(in crate::sqlite) struct Receiver<T>(mpsc::Receiver<T>);

    impl<T> Receiver<T> {
        pub(in crate::sqlite) fn recv(&self) -> Result<T, RecvError> {
            self.0.recv()
        }

        pub(in crate::sqlite) fn try_recv(&self) -> Result<T, TryRecvError> {
            self.0.try_recv()
        }

        pub(in crate::sqlite) fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
            self.0.recv_timeout(timeout)
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            while !std::thread::panicking() && self.0.try_recv().is_ok() {}
        }
    }

    pub(in crate::sqlite) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = mpsc::channel();
        (sender, Receiver(receiver))
    }
}

/// The same channel, around which others may go on.
#[cfg(feature = "interleavings")]
pub(super) mod oneshot {
    use tokio::sync::oneshot;

    pub(in crate::sqlite) use oneshot::Receiver;

    pub(in crate::sqlite) struct Sender<T>(oneshot::Sender<T>);

    impl<T> Sender<T> {
        pub(in crate::sqlite) fn send(self, value: T) -> Result<(), T> {
            shuttle::thread::yield_now();
            let sent = self.0.send(value);
            shuttle::thread::yield_now();
            sent
        }

        pub(in crate::sqlite) fn is_closed(&self) -> bool {
            shuttle::thread::yield_now();
            self.0.is_closed()
        }
    }

    pub(in crate::sqlite) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Sender(sender), receiver)
    }
}
