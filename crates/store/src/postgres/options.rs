//! How to open the store.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sickbay_core::{Clock, ErrorKind, StoreError};

use crate::door::Limits;

/// The longest name that a schema may have, so that what is built from it still fits.
const SCHEMA_BYTES_MAX: usize = 40;

/// How to open a store on PostgreSQL.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) schema: String,
    pub(super) limits: Limits,
    pub(super) connections: usize,
    pub(super) connection_wait: Duration,
    pub(super) call_time: Duration,
    pub(super) name: Option<String>,
    pub(super) sole_owner: bool,
    pub(super) evidence: String,
    pub(super) listen: bool,
    pub(super) visitor: bool,
    pub(super) roots: Vec<CertificateDer<'static>>,
    pub(super) insecure: bool,
    pub(super) clock: Option<Arc<dyn Clock>>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "sickbay".to_owned(),
            limits: Limits::default(),
            connections: 8,
            connection_wait: Duration::from_secs(10),
            call_time: Duration::from_secs(30),
            name: None,
            sole_owner: false,
            evidence: "the process that held it died".to_owned(),
            listen: true,
            visitor: false,
            roots: Vec::new(),
            insecure: false,
            clock: None,
        }
    }
}

impl PostgresOptions {
    /// The schema that holds the store: lower-case letters, digits and `_`, at most 40. Defaults to
    /// `sickbay`.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// How large what is pushed may be. Defaults to 16 MiB of payload and 64 KiB of headers.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// At most so many connections, one more for notifications. Defaults to 8; about two for each
    /// core of the database are best.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// How long a call waits for a free connection before it fails with `SB0064`. Defaults to 10 s.
    #[must_use]
    pub fn connection_wait(mut self, wait: Duration) -> Self {
        self.connection_wait = wait;
        self
    }

    /// How long the database may take for one call before it fails with `SB0065`. Defaults to 30 s.
    #[must_use]
    pub fn call_time(mut self, time: Duration) -> Self {
        self.call_time = time;
        self
    }

    /// The name of this instance, which no other has at the same time ("host-a/worker-1"). When an
    /// instance is opened whose name was never given back, its earlier process died: what that held
    /// becomes suspect at once. Defaults to none: what a dead process held comes back when its leases
    /// run out.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// This process alone works on the store, as with an embedded one: opening it begins a new epoch,
    /// and what anybody held comes back at once. Defaults to false.
    #[must_use]
    pub fn sole_owner(mut self, sole_owner: bool) -> Self {
        self.sole_owner = sole_owner;
        self
    }

    /// What is known of the death of the process that had this name before.
    #[must_use]
    pub fn evidence(mut self, evidence: impl Into<String>) -> Self {
        self.evidence = evidence.into();
        self
    }

    /// Whether a connection of its own listens for messages; otherwise waiting claims ask once a
    /// second. Defaults to true. A pooler in transaction mode does not let anybody listen.
    #[must_use]
    pub fn listen(mut self, listen: bool) -> Self {
        self.listen = listen;
        self
    }

    /// Looks in for a moment, as commands do: it is not listed among those who have the store open, listens to
    /// nothing, and does once what time has made due. Defaults to false.
    #[must_use]
    pub fn visitor(mut self, visitor: bool) -> Self {
        self.visitor = visitor;
        self
    }

    /// Trusts the certificates of this PEM text instead of the public ones.
    pub fn root_certificates(mut self, pem: &[u8]) -> Result<Self, StoreError> {
        let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        match roots {
            Ok(roots) if !roots.is_empty() => self.roots = roots,
            _ => {
                let text = "the root certificates are not PEM text with at least one certificate";
                return Err(StoreError::new(ErrorKind::Invalid, "SB0066", text));
            }
        }
        Ok(self)
    }

    /// Accepts any certificate: whoever is between this program and the database can read and change
    /// everything. Defaults to false.
    #[must_use]
    pub fn accept_any_certificate(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Runs on this clock instead of the database's. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }
}

/// Refuses a name that would have to be quoted.
pub(super) fn check_schema(schema: &str) -> Result<(), StoreError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins_well = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if begins_well
        && schema.chars().all(plain)
        && schema.len() <= SCHEMA_BYTES_MAX
        && !schema.starts_with("pg_")
    {
        return Ok(());
    }
    let text = format!(
        "{schema:?} cannot be the name of a schema; lower-case letters, digits and _ are allowed, at most {SCHEMA_BYTES_MAX}"
    );
    Err(StoreError::new(ErrorKind::Invalid, "SB0018", text))
}
