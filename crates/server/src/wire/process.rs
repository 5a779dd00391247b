//! Processes.

use serde::{Deserialize, Serialize};
use sickbay_core::QueueName;
use sickbay_core::port::ProcessId;
use sickbay_core::stats::ProcessView;

use super::Time;

/// A process that works on the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number, as 16 hexadecimal digits.
    pub process: String,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The names of its workers.
    pub workers: Vec<String>,
    /// The queues that they claim from.
    pub queues: Vec<QueueName>,
    /// When it was seen last.
    pub seen_at: Time,
    /// How many messages it holds.
    pub holds: u64,
}

/// All processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// In the order of their numbers.
    pub processes: Vec<Process>,
}

impl From<ProcessView> for Process {
    fn from(view: ProcessView) -> Self {
        let ProcessView { process, name, workers, queues, seen_at, holds } = view;
        Self { process: format!("{:016x}", process.0), name, workers, queues, seen_at: seen_at.into(), holds }
    }
}

impl TryFrom<Process> for ProcessView {
    type Error = std::num::ParseIntError;

    fn try_from(process: Process) -> Result<Self, Self::Error> {
        let number = u64::from_str_radix(&process.process, 16)?;
        let Process { name, workers, queues, seen_at, holds, .. } = process;
        Ok(Self { process: ProcessId(number), name, workers, queues, seen_at: seen_at.into(), holds })
    }
}
