//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::peer::Peer;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Drain,
    Latency,
}

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) kind: Kind,
    /// Messages to drain. Defaults to 50,000.
    pub(crate) count: usize,
    /// How long the producer of `latency` runs. Defaults to 5 s.
    pub(crate) duration: Duration,
    /// Repetitions: of drains the fastest counts. Defaults to 1.
    pub(crate) rounds: usize,
    /// Where peers that keep files put them. Defaults to the current folder.
    pub(crate) dir: PathBuf,
    /// Where packages for Node.js are installed. Defaults to `peers-node` in `dir`.
    pub(crate) node: Option<PathBuf>,
    pub(crate) pg: Option<String>,
    pub(crate) amqp: Option<String>,
    only: Vec<Peer>,
}

impl Args {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let kind = match words.next().as_deref() {
            Some("drain") => Kind::Drain,
            Some("latency") => Kind::Latency,
            other => bail!("expected `drain` or `latency`, got {other:?}"),
        };
        let mut args = Self {
            kind,
            count: 50_000,
            duration: Duration::from_secs(5),
            rounds: 1,
            dir: PathBuf::from("."),
            node: None,
            pg: None,
            amqp: None,
            only: Vec::new(),
        };
        while let Some(option) = words.next() {
            let value = words.next().with_context(|| format!("{option} needs a value"))?;
            args.set(&option, value).with_context(|| option.clone())?;
        }
        Ok(args)
    }

    fn set(&mut self, option: &str, value: String) -> Result<()> {
        match option {
            "--count" => self.count = value.parse()?,
            "--seconds" => self.duration = Duration::try_from_secs_f64(value.parse()?)?,
            "--rounds" => self.rounds = value.parse()?,
            "--dir" => self.dir = value.into(),
            "--node" => self.node = Some(value.into()),
            "--pg" => self.pg = Some(value),
            "--amqp" => self.amqp = Some(value),
            "--only" => self.only = value.split(',').map(str::parse).collect::<Result<_>>()?,
            _ => bail!("unknown option"),
        }
        Ok(())
    }

    /// Those named by `--only`, else all that can be measured and whose server has an address.
    pub(crate) fn peers(&self) -> Result<Vec<Peer>> {
        if self.only.is_empty() {
            let is_wanted = |peer: &Peer| peer.is_reachable(self) && peer.measures(self.kind);
            return Ok(Peer::ALL.into_iter().filter(is_wanted).collect());
        }
        match self.only.iter().find(|peer| !peer.is_reachable(self)) {
            Some(peer) => bail!("{peer} needs the address of its server"),
            None => Ok(self.only.clone()),
        }
    }
}
