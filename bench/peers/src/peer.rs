//! The queues that are measured.

mod apalis;
mod effectum;
mod graphile;
mod pg_boss;
mod pgmq;
mod rabbitmq;
mod underway;

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};

use crate::args::{Args, Kind};
use crate::load::{Drained, Latencies};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Effectum,
    Graphile,
    Apalis,
    /// In batches of so many.
    Pgmq(u16),
    PgBoss,
    Underway,
    RabbitMq,
}

/// Says which version of a crate was built.
const LOCK: &str = include_str!("../Cargo.lock");

impl Peer {
    pub(crate) const ALL: [Self; 8] = [
        Self::Effectum,
        Self::Graphile,
        Self::Apalis,
        Self::Pgmq(1000),
        Self::Pgmq(100),
        Self::PgBoss,
        Self::Underway,
        Self::RabbitMq,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Effectum => "effectum",
            Self::Graphile => "graphile_worker",
            Self::Apalis => "apalis_postgres",
            Self::Pgmq(100) => "pgmq_100",
            Self::Pgmq(_) => "pgmq",
            Self::PgBoss => "pg_boss",
            Self::Underway => "underway",
            Self::RabbitMq => "rabbitmq",
        }
    }

    pub(crate) fn is_reachable(self, args: &Args) -> bool {
        match self {
            Self::Effectum => true,
            Self::Graphile | Self::Apalis | Self::Pgmq(_) | Self::PgBoss | Self::Underway => {
                args.pg.is_some()
            }
            Self::RabbitMq => args.amqp.is_some(),
        }
    }

    pub(crate) fn measures(self, kind: Kind) -> bool {
        kind == Kind::Drain || !matches!(self, Self::Pgmq(_) | Self::PgBoss | Self::Underway)
    }

    /// The version of the package that is measured; of a broker, that of its client.
    pub(crate) fn version(self) -> Option<String> {
        match self {
            Self::Effectum => locked("effectum"),
            Self::Graphile => locked("graphile_worker"),
            Self::Apalis => locked("apalis-postgres"),
            Self::Pgmq(_) => locked("pgmq"),
            Self::PgBoss => pg_boss::version(),
            Self::Underway => locked("underway"),
            Self::RabbitMq => locked("lapin"),
        }
    }

    /// How it is driven, in words.
    pub(crate) fn settings(self) -> String {
        match self {
            Self::Effectum => effectum::settings(),
            Self::Graphile => graphile::settings(),
            Self::Apalis => apalis::settings(),
            Self::Pgmq(batch) => pgmq::settings(batch),
            Self::PgBoss => pg_boss::settings(),
            Self::Underway => underway::settings(),
            Self::RabbitMq => rabbitmq::settings(),
        }
    }

    pub(crate) async fn drain(self, args: &Args) -> Result<Drained> {
        match self {
            Self::Effectum => effectum::drain(args).await,
            Self::Graphile => graphile::drain(args).await,
            Self::Apalis => apalis::drain(args).await,
            Self::Pgmq(batch) => pgmq::drain(args, batch).await,
            Self::PgBoss => pg_boss::drain(args).await,
            Self::Underway => underway::drain(args).await,
            Self::RabbitMq => rabbitmq::drain(args).await,
        }
    }

    pub(crate) async fn latency(self, args: &Args) -> Result<Latencies> {
        match self {
            Self::Effectum => effectum::latency(args).await,
            Self::Graphile => graphile::latency(args).await,
            Self::Apalis => apalis::latency(args).await,
            Self::Pgmq(_) | Self::PgBoss | Self::Underway => bail!("only the drain of {self} is measured"),
            Self::RabbitMq => rabbitmq::latency(args).await,
        }
    }
}

/// The version of a package in the lock file.
fn locked(package: &str) -> Option<String> {
    let entry = LOCK.split_once(&format!("name = \"{package}\"\nversion = \""))?.1;
    Some(entry.split_once('"')?.0.to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_says_its_version() {
        for peer in Peer::ALL {
            assert!(peer.version().is_some_and(|version| version.contains('.')), "{peer}");
        }
    }
}
