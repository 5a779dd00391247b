//! A few connections, lent one at a time. Nothing is kept in a session: behind a pooler in transaction
//! mode each statement may run in another one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sickbay_core::StoreError;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_postgres::config::Config;
use tokio_postgres::{AsyncMessage, Client};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure;

/// The connections of one store.
pub(super) struct Pool {
    config: Config,
    tls: MakeRustlsConnect,
    idle: Mutex<Vec<Client>>,
    permits: Semaphore,
    connections: usize,
    wait: Duration,
}

/// A connection until it is dropped.
pub(super) struct Lent<'p> {
    client: Option<Client>,
    pool: &'p Pool,
    _permit: SemaphorePermit<'p>,
}

impl Pool {
    pub(super) fn new(config: Config, tls: MakeRustlsConnect, connections: usize, wait: Duration) -> Self {
        let (idle, permits) = (Mutex::default(), Semaphore::new(connections));
        Self { config, tls, idle, permits, connections, wait }
    }

    /// Lends a connection: one that is idle, or a new one.
    pub(super) async fn lend(&self) -> Result<Lent<'_>, StoreError> {
        let permit = timeout(self.wait, self.permits.acquire()).await;
        let Ok(permit) = permit else { return Err(failure::no_connection(self.connections)) };
        let permit = permit.map_err(|_| crate::door::closed())?;
        let idle = loop {
            let client = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match client {
                Some(client) if client.is_closed() => {}
                other => break other,
            }
        };
        let client = match idle {
            Some(client) => client,
            None => self.connect().await?,
        };
        Ok(Lent { client: Some(client), pool: self, _permit: permit })
    }

    /// A connection that is nobody else's.
    pub(super) async fn connect(&self) -> Result<Client, StoreError> {
        let connecting = self.config.connect(self.tls.clone());
        let (client, connection) = connecting.await.map_err(|error| failure::connecting(&error))?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(client)
    }

    /// What it takes to listen without the pool.
    pub(super) fn listener(&self) -> Listener {
        Listener { config: self.config.clone(), tls: self.tls.clone() }
    }

    /// Nobody gets a connection any more.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Lent<'_> {
    /// The connection. It is there until it is given up.
    pub(super) fn client(&mut self) -> Result<&mut Client, StoreError> {
        self.client.as_mut().ok_or_else(crate::door::closed)
    }

    /// Something went wrong on the way: this connection is not used again.
    pub(super) fn give_up(&mut self) {
        self.client = None;
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take().filter(|client| !client.is_closed()) {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
    }
}

/// Opens a connection that is not of the pool.
pub(super) struct Listener {
    config: Config,
    tls: MakeRustlsConnect,
}

impl Listener {
    /// Hands every notification to `notified` until the connection ends or that says no.
    pub(super) async fn listen(
        &self,
        channel: &str,
        notified: impl Fn(Option<&str>) -> bool + Send,
    ) -> Result<(), StoreError> {
        let connecting = self.config.connect(self.tls.clone());
        let (client, mut connection) = connecting.await.map_err(|error| failure::connecting(&error))?;
        let driver = async {
            while let Some(message) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notification(said)) if !notified(Some(said.payload())) => return,
                    Err(_) => return,
                    _ => {}
                }
            }
        };
        let listen = async {
            let listened = client.batch_execute(&format!("LISTEN \"{channel}\"")).await;
            listened.map_err(|error| failure::translate(&error))?;
            std::future::pending().await
        };
        tokio::select! {
            () = driver => Ok(()),
            never = listen => never,
        }
    }
}
