//! The queues that are measured.

mod apalis;
mod effectum;
mod graphile;
mod rabbitmq;

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};

use crate::args::Args;
use crate::load::{Drained, Latencies};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Effectum,
    Graphile,
    Apalis,
    RabbitMq,
}

impl Peer {
    pub(crate) const ALL: [Self; 4] = [Self::Effectum, Self::Graphile, Self::Apalis, Self::RabbitMq];

    fn name(self) -> &'static str {
        match self {
            Self::Effectum => "effectum",
            Self::Graphile => "graphile_worker",
            Self::Apalis => "apalis_postgres",
            Self::RabbitMq => "rabbitmq",
        }
    }

    pub(crate) fn is_reachable(self, args: &Args) -> bool {
        match self {
            Self::Effectum => true,
            Self::Graphile | Self::Apalis => args.pg.is_some(),
            Self::RabbitMq => args.amqp.is_some(),
        }
    }

    pub(crate) async fn drain(self, args: &Args) -> Result<Drained> {
        match self {
            Self::Effectum => effectum::drain(args).await,
            Self::Graphile => graphile::drain(args).await,
            Self::Apalis => apalis::drain(args).await,
            Self::RabbitMq => rabbitmq::drain(args).await,
        }
    }

    pub(crate) async fn latency(self, args: &Args) -> Result<Latencies> {
        match self {
            Self::Effectum => effectum::latency(args).await,
            Self::Graphile => graphile::latency(args).await,
            Self::Apalis => apalis::latency(args).await,
            Self::RabbitMq => rabbitmq::latency(args).await,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Peer {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|peer| peer.name() == name) {
            Some(peer) => Ok(peer),
            None => bail!("unknown peer {name}; there are {}", Self::ALL.map(Self::name).join(", ")),
        }
    }
}
