//! Processes: who has the store open, who died, and what time has made due (contract 16–18).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::decide::{Decision, Facts as DecideFacts, Outcome, decide};
use sickbay_core::port::{ProcessId, Renewal};
use sickbay_core::{LeaseToken, MessageType, QueueName, QueuePolicy, StoreError, Timestamp};
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::call::{Failed, Param, Work};
use super::pack::Details;
use super::push::millis;
use super::row::{Facts, id, name, odd};
use super::settle::{Columns, act, signature};
use super::{Inner, PostgresStore};
use crate::door;

const SETTLE: &str = "SELECT sickbay.settle(sickbay.time_now($1), true, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
    $13, $14, $15, $16)";

/// How often time is looked at, and how often this instance says that it lives.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const SWEEPS_PER_BEAT: u32 = 5;

/// A program that has the store open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its process, as its leases name it.
    pub process: ProcessId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Since when.
    pub opened_at: Timestamp,
    /// When it said so last.
    pub beat_at: Timestamp,
    /// How many messages its process holds.
    pub holds: u64,
}

impl PostgresStore {
    /// Who has the store open, the longest first.
    pub async fn instances(&self) -> Result<Vec<Instance>, StoreError> {
        let inner = self.inner.clone();
        self.run(async move { inner.instances().await }).await
    }

    /// Begins a new epoch, after the database was restored from a copy or another server took over: no
    /// token that was given out before counts any more, and what was held comes back at once.
    pub async fn begin_epoch(&self) -> Result<u64, StoreError> {
        let inner = self.inner.clone();
        self.change(async move {
            let now = inner.now();
            let rows = inner.query("SELECT sickbay.begin_epoch($1)", &[(&now, Type::INT8)]).await?;
            inner.bell.ring(None);
            Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64))
        })
        .await
    }
}

impl Inner {
    /// Registers this instance. Its name's earlier process is dead; a sole owner begins a new epoch.
    pub(super) async fn arrive(&self) -> Result<(), StoreError> {
        self.transact(Arrival).await
    }

    /// Gives back what this instance holds, and forgets the instance.
    pub(super) async fn leave(&self) -> Result<(), StoreError> {
        let process = self.process.0 as i64;
        let held = "SELECT epoch, claim, unnest(ids) FROM sickbay.lease WHERE process = $1";
        let rows = self.query(held, &[(&process, Type::INT8)]).await?;
        let tokens = rows.iter().map(|row| {
            let (epoch, claim) = (row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64);
            Ok(LeaseToken { epoch, claim, message: id(row.get(2))? })
        });
        self.release(tokens.collect::<Result<_, StoreError>>()?).await?;
        let gone = "DELETE FROM sickbay.instance WHERE process = $1";
        self.query(gone, &[(&process, Type::INT8)]).await.map(drop)
    }

    async fn instances(&self) -> Result<Vec<Instance>, StoreError> {
        let rows = self.query(INSTANCES, &[]).await?;
        Ok(rows.iter().map(instance).collect())
    }

    /// A process is gone, with all that it held (contract 17).
    pub(super) async fn process_died(
        self: Arc<Self>,
        process: ProcessId,
        evidence: String,
    ) -> Result<u64, StoreError> {
        let died = self.transact(Death { process, evidence }).await?;
        self.bell.ring(None);
        Ok(died)
    }

    async fn crash_all(
        &self,
        transaction: &Transaction<'_>,
        process: ProcessId,
        evidence: &str,
    ) -> Result<u64, Failed> {
        let (now, number) = (self.now(), process.0 as i64);
        let held = "SELECT * FROM sickbay.held_by(sickbay.time_now($1), $2)";
        let params: [Param<'_>; 2] = [(&now, Type::INT8), (&number, Type::INT8)];
        let rows = transaction.query_typed(&self.sql(held), &params).await?;
        let mut columns = Columns::default();
        for row in &rows {
            let token = LeaseToken {
                epoch: row.get::<_, i64>(0) as u64,
                claim: row.get::<_, i64>(1) as u64,
                message: id(row.get(2))?,
            };
            let queue = QueueName::new(row.get::<_, &str>(3)).map_err(|error| odd(&error))?;
            let policy: QueuePolicy = serde_json::from_str(row.get(4)).map_err(|error| odd(&error))?;
            let message_type = name::<MessageType>(row.get(5))?;
            let mut facts = Facts::read(row.get::<_, Option<Vec<i32>>>(6).as_deref());
            facts.counters.deliveries += 1;
            add_crash(
                &mut columns,
                token,
                &Crash {
                    queue: &queue,
                    policy: &policy,
                    message_type: message_type.as_ref(),
                    facts,
                    alone: rows.len() == 1,
                    evidence,
                },
            );
        }
        if !rows.is_empty() {
            let mut params: Vec<Param<'_>> = vec![(&now, Type::INT8)];
            params.extend(columns.token_params());
            params.extend(columns.decision_params());
            params.push((&columns.charged, Type::BOOL_ARRAY));
            transaction.query_typed(&self.sql(SETTLE), &params).await?;
        }
        let forget = "DELETE FROM sickbay.presence WHERE process = $1";
        transaction.query_typed(&self.sql(forget), &[(&number, Type::INT8)]).await?;
        Ok(rows.len() as u64)
    }

    pub(super) async fn renew(&self, renewal: Renewal) -> Result<Vec<LeaseToken>, StoreError> {
        let mut columns = Columns::default();
        renewal.tokens.iter().for_each(|token| columns.add_token(*token));
        let (now, lease) = (self.now(), millis(renewal.lease));
        let [epochs, claims, ids] = columns.token_params();
        let params: [Param<'_>; 5] = [(&now, Type::INT8), epochs, claims, ids, (&lease, Type::INT8)];
        let rows = self.query("SELECT sickbay.renew($1, $2, $3, $4, $5)", &params).await?;
        let lost = rows.iter().filter_map(|row| usize::try_from(row.get::<_, i64>(0) - 1).ok());
        Ok(lost.filter_map(|at| renewal.tokens.get(at).copied()).collect())
    }

    pub(super) async fn sweep(&self) -> Result<(), StoreError> {
        let now = self.now();
        self.query("SELECT sickbay.sweep_now($1)", &[(&now, Type::INT8)]).await?;
        self.bell.ring(None);
        Ok(())
    }

    /// Does what time makes due, as long as the store is open. On another clock than the database's, whoever
    /// moves it sweeps.
    pub(super) fn start_sweeping(self: &Arc<Self>) {
        if self.options.clock.is_some() {
            return;
        }
        let (inner, bell) = (Arc::downgrade(self), self.bell.clone());
        self.runtime.spawn(async move {
            let mut turn = 0u32;
            while bell.pause(SWEEP_EVERY).await {
                let Some(inner) = inner.upgrade() else { return };
                // What fails now is done by the next turn, or by another instance.
                drop(inner.query("SELECT sickbay.sweep(NULL)", &[]).await);
                if turn.is_multiple_of(SWEEPS_PER_BEAT) {
                    let process = inner.process.0 as i64;
                    drop(inner.query("SELECT sickbay.beat(NULL, $1)", &[(&process, Type::INT8)]).await);
                }
                turn = turn.wrapping_add(1);
            }
        });
    }
}

/// Who has the store open, and how much each holds.
pub(super) const INSTANCES: &str = "SELECT i.process, i.name, i.opened_at, i.beat_at,
    (SELECT coalesce(sum(cardinality(l.ids)), 0)::bigint FROM sickbay.lease l WHERE l.process = i.process)
    FROM sickbay.instance i ORDER BY i.opened_at, i.process";

pub(super) fn instance(row: &tokio_postgres::Row) -> Instance {
    Instance {
        process: ProcessId(row.get::<_, i64>(0) as u64),
        name: row.get(1),
        opened_at: Timestamp::from_millis(row.get(2)),
        beat_at: Timestamp::from_millis(row.get(3)),
        holds: row.get::<_, i64>(4) as u64,
    }
}

/// An instance opens the store.
struct Arrival;

#[async_trait]
impl Work for Arrival {
    type Done = ();

    async fn run(&mut self, inner: &Inner, transaction: &Transaction<'_>) -> Result<(), Failed> {
        let (now, process, name) = (inner.now(), inner.process.0 as i64, &inner.options.name);
        let params: [Param<'_>; 3] = [(&now, Type::INT8), (&process, Type::INT8), (name, Type::TEXT)];
        let open = inner.sql("SELECT sickbay.open_instance($1, $2, $3)");
        let rows = transaction.query_typed(&open, &params).await?;
        if let Some(before) = rows.first().and_then(|row| row.get::<_, Option<i64>>(0)) {
            inner.crash_all(transaction, ProcessId(before as u64), &inner.options.evidence).await?;
        }
        if inner.options.sole_owner {
            let own = inner.sql("SELECT sickbay.begin_epoch($1)");
            transaction.query_typed(&own, &[(&now, Type::INT8)]).await?;
        }
        Ok(())
    }
}

/// A process is gone.
struct Death {
    process: ProcessId,
    evidence: String,
}

#[async_trait]
impl Work for Death {
    type Done = u64;

    async fn run(&mut self, inner: &Inner, transaction: &Transaction<'_>) -> Result<u64, Failed> {
        inner.crash_all(transaction, self.process, &self.evidence).await
    }
}

/// A message whose process died.
struct Crash<'c> {
    queue: &'c QueueName,
    policy: &'c QueuePolicy,
    message_type: Option<&'c MessageType>,
    facts: Facts,
    alone: bool,
    evidence: &'c str,
}

fn add_crash(columns: &mut Columns, token: LeaseToken, crash: &Crash<'_>) {
    let facts =
        DecideFacts { id: token.message, message_type: crash.message_type, counters: crash.facts.counters };
    let outcome = Outcome::Crashed { alone: crash.alone, evidence: crash.evidence.to_owned() };
    let decision = decide(crash.policy, facts, outcome);
    if let Decision::Quarantine { set_aside, failure } = decision {
        let failure = door::clean(failure);
        let signature = signature(crash.queue, crash.message_type, &failure, crash.policy);
        let details = Details { failure: Some(failure), signature: Some(signature), ..Details::default() };
        let aside = Some(set_aside.as_str());
        columns.add_own(token, act::CRASHED_AND_QUARANTINED, &details, aside, crash.alone);
    } else {
        let details = Details { failure: Some(door::crashed(crash.evidence)), ..Details::default() };
        columns.add_own(token, act::CRASHED, &details, None, crash.alone);
    }
}
