//! Ways to die.

use clap::ValueEnum;

/// How the killer order kills its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Death {
    /// It aborts
    Abort,
    /// It is killed, as by the kernel
    Kill,
    /// It exits in the middle of its work
    Exit,
    /// It runs out of stack
    Overflow,
    /// It runs out of memory
    Memory,
}

impl Death {
    /// Ends the process.
    pub(super) fn die(self) {
        match self {
            Self::Abort => std::process::abort(),
            Self::Exit => std::process::exit(1),
            Self::Overflow => drop(dig(0)),
            Self::Kill => kill(),
            Self::Memory => devour(),
        }
    }
}

#[expect(unconditional_recursion, reason = "it is meant to end badly")]
fn dig(depth: u64) -> u64 {
    let ballast = std::hint::black_box([depth; 512]);
    dig(depth + 1) + ballast[7]
}

#[cfg(unix)]
fn kill() {
    use rustix::process::{Signal, getpid, kill_process};
    let _ = kill_process(getpid(), Signal::KILL);
}

#[cfg(not(unix))]
fn kill() {
    std::process::abort();
}

/// Takes memory until there is no more, under a limit so that nobody else suffers.
fn devour() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let limit = Some(1 << 30);
        let _ = setrlimit(Resource::As, Rlimit { current: limit, maximum: limit });
    }
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    while eaten.len() < 4096 {
        eaten.push(std::hint::black_box(vec![1; 16 << 20]));
    }
    std::process::abort();
}
