//! A source: where deliveries come from. Our own queues are one; each broker is another.

use std::time::Duration;

use async_trait::async_trait;

use crate::delivery::Delivery;
use crate::error::StoreError;
use crate::id::LeaseToken;
use crate::settlement::{Settled, Settlement};

/// One turn of a worker with its source.
#[derive(Debug, Default)]
pub struct Turn {
    /// What became of earlier deliveries, each with the delivery it settles.
    pub settlements: Vec<Settlement>,
    /// At most so many new deliveries; zero to settle only.
    pub want: u32,
    /// How long to wait for the first one; ignored when there are settlements.
    pub wait: Duration,
}

/// Why a turn failed.
pub type SourceError = StoreError;

/// Where deliveries come from and settlements go. On a broker, settling a failure means adopting the
/// message into the store first and acknowledging the broker second; on our own queues it is one
/// transaction. The worker cannot tell the difference.
#[async_trait]
pub trait Source: Send + Sync {
    /// Hands in settlements and takes the next deliveries.
    async fn turn(&self, turn: Turn) -> Result<(Vec<Settled>, Vec<Delivery>), SourceError>;

    /// Prolongs leases. Those that are lost are named in the answer.
    async fn renew(&self, tokens: Vec<LeaseToken>, lease: Duration) -> Result<Vec<LeaseToken>, SourceError>;

    /// The policy in force for this source's queue now.
    async fn policy(&self) -> Result<std::sync::Arc<crate::policy::QueuePolicy>, SourceError>;

    /// Opens or closes deliveries of a message type; what the breaker calls.
    async fn set_type_gate(
        &self,
        message_type: &crate::name::MessageType,
        gate: crate::stats::TypeGate,
    ) -> Result<(), SourceError>;

    /// True if the message with this key has been done already, so that it need not run.
    async fn is_done(&self, key: &crate::name::Key) -> Result<bool, SourceError>;
}
