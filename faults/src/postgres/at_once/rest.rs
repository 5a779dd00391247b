//! Where everybody has come to rest, and in the end: everything must be in order.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use sickbay_core::port::{Claim, Deliveries, Desk, Exchange, ProcessId};
use sickbay_core::stats::TypeGate;
use sickbay_core::{Settlement, StreamKey, WorkerName};

use super::deed::{self, Act, Answer};
use super::{AtOnce, CALLER, Schedule, brakes, tell};

impl Schedule {
    /// Everybody comes as far as they can; then everything must be in order.
    pub(super) async fn rest(&mut self, outcome: &mut AtOnce) -> Result<()> {
        let busy = || {
            let programs = self.programs.iter();
            let busy = programs.filter(|one| one.busy.as_ref().is_some_and(|busy| !busy.task.is_finished()));
            let names = busy.map(|one| one.name.clone());
            names.chain(self.caller.is_busy().then(|| CALLER.to_owned())).collect::<Vec<_>>()
        };
        let waiting = brakes::come_to_rest(&self.watcher, busy).await?;
        let stopped =
            self.programs.iter().filter(|one| one.busy.as_ref().is_some_and(|busy| busy.stop.is_some()));
        outcome.waits += u64::from(waiting > stopped.count());
        let circle = if waiting > 1 { brakes::circle(&self.watcher).await? } else { Vec::new() };
        if !circle.is_empty() {
            bail!("{} wait for each other", circle.join(" and "));
        }
        let mut answers = Vec::new();
        for at in 0..self.programs.len() {
            if self.programs[at].busy.as_ref().is_some_and(|busy| busy.task.is_finished()) {
                self.let_go(at).await?;
                if let Some(busy) = self.programs[at].busy.take() {
                    let answer = busy.task.await.context("a call panicked")?;
                    let answer = answer.map_err(|error| anyhow::anyhow!("{at} is told: {error}"))?;
                    self.trace.push(format!("{at} is told {}", tell::answer(&answer)));
                    answers.push(answer);
                }
            }
        }
        if let Some(pushed) = self.caller.take_pushed()? {
            self.trace.push(format!("the caller is told {}", tell::answer(&pushed)));
            answers.push(pushed);
        }
        let mut wrong = self.book.note_all(answers);
        let eager: Vec<String> = self
            .programs
            .iter()
            .filter(|one| one.busy.as_ref().is_some_and(|busy| busy.deed.never_waits()))
            .map(|one| one.name.clone())
            .collect();
        if self.caller.is_open() && !eager.is_empty() {
            let kept = brakes::kept_by(&self.watcher, CALLER, &eager).await?;
            wrong.extend(kept.iter().map(|name| format!("{name} waits for the transaction of a caller")));
        }
        wrong.extend(self.look.wrong(&self.watcher).await?);
        wrong.extend(self.book.compare(&self.look.present(&self.watcher).await?));
        if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("; ")) }
    }

    /// Everybody goes on to the end, and then everything is delivered.
    pub(super) async fn end(&mut self, outcome: &mut AtOnce) -> Result<()> {
        self.trace.push("everybody goes on".to_owned());
        for _ in 0..3 {
            for at in 0..self.programs.len() {
                self.let_go(at).await?;
            }
            self.caller.end(true);
            self.rest(outcome).await?;
        }
        if let Some(stuck) = self.programs.iter().find(|one| one.busy.is_some()) {
            bail!("{} is stuck", stuck.name);
        }
        self.clock.advance(Duration::from_secs(3600));
        self.drain().await?;
        self.rest(outcome).await?;
        let left = format!("SELECT string_agg(id::text, ', ') FROM {}.waiting", self.schema);
        match self.watcher.query_one(&left, &[]).await?.get::<_, Option<String>>(0) {
            Some(left) => bail!("nobody can claim {left}"),
            None => Ok(()),
        }
    }

    /// Delivers and completes what there is. Nothing holds it back any more.
    async fn drain(&mut self) -> Result<()> {
        let store = self.programs[0].store.clone();
        store.sweep().await?;
        for queue in deed::queues()? {
            store.set_type_gate(&queue, &deed::gated()?, TypeGate::Open).await?;
            store.set_paused(&queue, false).await?;
        }
        // Those that are suspect come one at a time, and those that have met a key after a second.
        let mut idle = 0;
        while idle < 3 {
            idle += 1;
            self.clock.advance(Duration::from_secs(2));
            for queue in deed::queues()? {
                let (worker, process) = (WorkerName::new("last")?, ProcessId(99));
                let (wait, lease) = (Duration::ZERO, deed::LEASE);
                let claim = Claim { queue: queue.clone(), worker, process, max: 10, wait, lease };
                let exchanged = store.exchange(Exchange::claim(claim)).await?;
                if !exchanged.deliveries.is_empty() {
                    idle = 0;
                }
                let done = exchanged.deliveries.iter().map(|delivery| (delivery.lease.token, Act::Complete));
                let done: Vec<_> = done.collect();
                let settlements = done.iter().map(|(token, _)| Settlement::complete(*token)).collect();
                self.believe(Answer::Exchanged(Vec::new(), exchanged))?;
                let settled = store.exchange(Exchange::settle(settlements)).await?;
                self.believe(Answer::Exchanged(done, settled))?;
                for stream in 0..deed::STREAMS_MAX {
                    store.release_followers(&queue, &StreamKey::new(format!("s{stream}"))?).await?;
                }
            }
        }
        Ok(())
    }

    /// Writes an answer down that must not contradict what is known.
    fn believe(&mut self, answer: Answer) -> Result<()> {
        let wrong = self.book.note_all(vec![answer]);
        if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("; ")) }
    }
}
