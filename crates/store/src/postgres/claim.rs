//! One exchange: settlements in, deliveries out (contract 6, 8–15, 18, 21, 31).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sickbay_core::decide::SetAside;
use sickbay_core::delivery::Delivery;
use sickbay_core::port::{Claim, Exchange, Exchanged};
use sickbay_core::settlement::Settled;
use sickbay_core::verdict::Effect;
use sickbay_core::{LeaseToken, Settlement, StoreError, StreamKey};
use tokio_postgres::types::Type;
use tokio_postgres::{Row, Transaction};

use super::answer::Answer;
use super::call::{Failed, Param, Work};
use super::floor::Floor;
use super::pack::Details;
use super::push::millis;
use super::settle::{Columns, act};
use super::{Inner, PostgresEffect};
use crate::door;

const EXCHANGE: &str = "SELECT * FROM sickbay.exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, \
    $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)";

/// Which of these tokens are current now; their leases are locked.
const LOCK: &str = "SELECT l.epoch, l.claim, m.id, t.now FROM (SELECT sickbay.time_now($1) AS now OFFSET 0) t, (
        SELECT epoch, claim, until, ids, untils FROM sickbay.lease WHERE claim = ANY ($2) ORDER BY claim FOR UPDATE
    ) l, unnest(l.ids, l.untils) m(id, until)
    WHERE m.id = ANY ($3) AND coalesce(m.until, l.until) > t.now AND l.epoch >= sickbay.epoch()";

/// What came of one claim.
pub(super) enum Claimed {
    Some(Vec<Delivery>),
    /// Nothing; something may be claimable after so long.
    NotYet(Option<Duration>),
}

impl Inner {
    /// Settles and claims.
    pub(super) async fn exchange(self: Arc<Self>, exchange: Exchange) -> Result<Exchanged, StoreError> {
        let Exchange { mut settlements, claim } = exchange;
        let foreign = |effect: &Effect| !effect.is::<PostgresEffect>();
        if settlements.iter().filter_map(|settlement| settlement.effect.as_ref()).any(foreign) {
            return Err(door::foreign_effect());
        }
        self.complete_signatures(&mut settlements).await?;
        let answer = if settlements.iter().any(|settlement| settlement.effect.is_some()) {
            let answer =
                self.transact(Effects { settlements: Some(settlements), claim: claim.clone() }).await;
            self.floors.forget();
            answer?
        } else {
            let mut columns = Columns::default();
            settlements.into_iter().for_each(|settlement| columns.add(settlement));
            columns.put_in_order();
            self.exchange_once(&columns, claim.as_ref()).await?
        };
        self.bell.ring(None);
        let settled = answer.settled.clone();
        let deliveries = match claim {
            // What was settled stays settled, whatever comes of the rest.
            Some(claim) if !settled.is_empty() => {
                self.without_corrupt(answer, &claim).await.unwrap_or_default()
            }
            Some(claim) => self.without_corrupt(answer, &claim).await?,
            None => Vec::new(),
        };
        Ok(Exchanged { settled, deliveries })
    }

    /// One claim that does not wait.
    pub(super) async fn claim_once(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let answer = self.exchange_once(&Columns::default(), Some(claim)).await?;
        let again_in = answer.again_in;
        let deliveries = self.without_corrupt(answer, claim).await?;
        Ok(if deliveries.is_empty() { Claimed::NotYet(again_in) } else { Claimed::Some(deliveries) })
    }

    async fn exchange_once(&self, columns: &Columns, claim: Option<&Claim>) -> Result<Answer, StoreError> {
        let wish = Wish::new(self, claim);
        let asked = self.query(EXCHANGE, &wish.params(columns)).await;
        if asked.is_err() {
            self.floors.forget();
        }
        let mut answer = Answer::read(&asked?, claim)?;
        self.keep_floor(&wish, &answer);
        answer.settled = columns.as_given(answer.settled);
        Ok(answer)
    }

    /// Remembers what a claim has reached.
    fn keep_floor(&self, wish: &Wish<'_>, answer: &Answer) {
        if answer.low {
            self.floors.forget();
        } else if let (Some(queue), Some((walk, last))) = (wish.queue, answer.reached) {
            self.floors.learn(queue, wish.begun.clone(), walk, last);
        } else if let Some(queue) = wish.queue {
            self.floors.forget_queue(queue);
        }
    }

    /// Sets aside what is not what was pushed (contract 12). The rest of its stream's run was not handed out
    /// then, and if nothing is left the claim is made again. Where that fails, what is good is handed out all the same:
    /// the rest is met again when its lease has run out.
    async fn without_corrupt(&self, answer: Answer, claim: &Claim) -> Result<Vec<Delivery>, StoreError> {
        let mut answer = answer;
        while !answer.corrupt.is_empty() {
            let (mut good, mut corrupt, mut behind) = (Vec::new(), Vec::new(), Vec::new());
            let mut broken: Vec<&StreamKey> = Vec::new();
            let mut seen: Vec<&StreamKey> = Vec::new();
            for (at, delivery) in answer.deliveries.iter().enumerate() {
                let stream = delivery.message.stream.as_ref();
                let first = stream.is_none_or(|stream| !seen.contains(&stream));
                seen.extend(stream);
                match answer.corrupt.contains(&at) {
                    true if first => corrupt.push(delivery),
                    false if stream.is_none_or(|stream| !broken.contains(&stream)) => {
                        good.push(delivery.clone());
                        continue;
                    }
                    _ => behind.push(delivery),
                }
                broken.extend(stream);
            }
            let wanted = good.is_empty().then_some(claim);
            match self.set_corrupt_aside(&corrupt, &behind, claim.queue.as_str(), wanted).await {
                Ok(next) if good.is_empty() => answer = next,
                Err(error) if good.is_empty() => return Err(error),
                _ => return Ok(good),
            }
        }
        Ok(answer.deliveries)
    }

    /// Sets damaged messages aside, gives back what came behind them in their streams, and claims again if that is wanted.
    async fn set_corrupt_aside(
        &self,
        corrupt: &[&Delivery],
        behind: &[&Delivery],
        queue: &str,
        wanted: Option<&Claim>,
    ) -> Result<Answer, StoreError> {
        let policy = self.policy_of(queue).await?;
        let mut columns = Columns::default();
        for delivery in corrupt {
            let failure = door::corrupt();
            let signature = Some(door::signature(&delivery.message, &failure, &policy));
            let details = Details { signature, failure: Some(failure), ..Details::default() };
            let aside = Some(SetAside::Corrupt.as_str());
            columns.add_own(delivery.token(), act::CORRUPT, &details, aside, false);
        }
        for delivery in behind {
            columns.add_own(delivery.token(), act::NOT_HANDED_OUT, &Details::default(), None, false);
        }
        self.exchange_once(&columns, wanted).await
    }

    /// Gives back what was claimed for a caller who has gone away (contract 11).
    pub(super) async fn give_back(&self, deliveries: &[Delivery]) -> Result<(), StoreError> {
        self.release(deliveries.iter().map(Delivery::token).collect()).await
    }

    /// Gives back what is held under these tokens.
    pub(super) async fn release(&self, tokens: Vec<LeaseToken>) -> Result<(), StoreError> {
        if tokens.is_empty() {
            return Ok(());
        }
        let mut columns = Columns::default();
        tokens.into_iter().for_each(|token| columns.add(Settlement::release(token)));
        self.exchange_once(&columns, None).await?;
        self.bell.ring(None);
        Ok(())
    }
}

/// An exchange whose settlements bring writes of their handlers along. They run in the transaction that
/// settles, each in a savepoint of its own: one that fails leaves the others alone.
struct Effects {
    /// Taken by the first turn: an effect can be carried out once only.
    settlements: Option<Vec<Settlement>>,
    claim: Option<Claim>,
}

#[async_trait]
impl Work for Effects {
    type Done = Answer;

    async fn run(&mut self, inner: &Inner, transaction: &Transaction<'_>) -> Result<Answer, Failed> {
        let settlements = self.settlements.take().ok_or_else(super::failure::in_the_way)?;
        let tokens: Vec<LeaseToken> = settlements.iter().map(|settlement| settlement.token).collect();
        let Locked { current, now } = lock(inner, transaction, &tokens).await?;
        let mut settled: Vec<Option<Settled>> = Vec::with_capacity(settlements.len());
        let mut columns = Columns::default();
        let mut taken: Vec<LeaseToken> = Vec::new();
        for mut settlement in settlements {
            let token = settlement.token;
            let effect = settlement.effect.take();
            let held = current.contains(&token) && !taken.contains(&token);
            if let (true, Some(effect)) = (held, effect)
                && let Err(error) = carry_out(transaction, effect).await?
            {
                settled.push(Some(Settled::EffectFailed { error }));
                continue;
            }
            if held {
                taken.push(token);
            }
            settled.push(None);
            columns.add(settlement);
        }
        columns.put_in_order();
        // Whose lease was current then still has it, however long the effects took: nobody could take what is locked.
        let ended = Wish { now, ..Wish::new(inner, None) };
        let exchange = inner.sql(EXCHANGE);
        let rows = transaction.query_typed(&exchange, &ended.params(&columns)).await?;
        let mut answer = Answer::read(&rows, None)?;
        if self.claim.is_some() {
            let wish = Wish::new(inner, self.claim.as_ref());
            let rows = transaction.query_typed(&exchange, &wish.params(&Columns::default())).await?;
            let settled = std::mem::take(&mut answer.settled);
            answer = Answer { settled, ..Answer::read(&rows, self.claim.as_ref())? };
        }
        let mut answers = columns.as_given(std::mem::take(&mut answer.settled)).into_iter();
        let fill = |known: Option<Settled>| known.or_else(|| answers.next()).unwrap_or(Settled::LeaseLost);
        answer.settled = settled.into_iter().map(fill).collect();
        Ok(answer)
    }
}

/// What was current at a time, and cannot change until the end of the transaction.
struct Locked {
    current: Vec<LeaseToken>,
    /// None if nothing was current.
    now: Option<i64>,
}

/// Which of these tokens are current; their leases are locked.
async fn lock(inner: &Inner, transaction: &Transaction<'_>, tokens: &[LeaseToken]) -> Result<Locked, Failed> {
    let claims: Vec<i64> = tokens.iter().map(|token| token.claim as i64).collect();
    let ids: Vec<i64> = tokens.iter().map(|token| token.message.number() as i64).collect();
    let now = inner.now();
    let params: [Param<'_>; 3] = [(&now, Type::INT8), (&claims, Type::INT8_ARRAY), (&ids, Type::INT8_ARRAY)];
    let rows = transaction.query_typed(&inner.sql(LOCK), &params).await?;
    let token = |row: &Row| {
        let (epoch, claim) = (row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64);
        Ok(LeaseToken { epoch, claim, message: super::row::id(row.get(2))? })
    };
    let now = rows.first().map(|row| row.get(3)).or(now);
    Ok(Locked { current: rows.iter().map(token).collect::<Result<_, Failed>>()?, now })
}

/// The handler's own writes, all or none of them.
async fn carry_out(transaction: &Transaction<'_>, effect: Effect) -> Result<Result<(), String>, Failed> {
    let effect: PostgresEffect = effect.take().map_err(|_| door::foreign_effect())?;
    transaction.batch_execute("SAVEPOINT effect").await?;
    let result = effect.run(transaction).await;
    let end = if result.is_ok() { "RELEASE effect" } else { "ROLLBACK TO effect; RELEASE effect" };
    match transaction.batch_execute(end).await {
        Ok(()) => Ok(result),
        // A statement of the effect failed, and the effect said that all is well.
        Err(error) if result.is_ok() && error.code().is_some() => {
            transaction.batch_execute("ROLLBACK TO effect; RELEASE effect").await?;
            Ok(Err(super::failure::words(&error)))
        }
        Err(error) => Err(error.into()),
    }
}

/// A claim as parameters.
struct Wish<'c> {
    now: Option<i64>,
    queue: Option<&'c str>,
    worker: Option<&'c str>,
    process: i64,
    max: i32,
    lease: i64,
    /// What the last claim reached, and which knowledge that is.
    begun: (Option<Floor>, u64),
}

impl<'c> Wish<'c> {
    fn new(inner: &Inner, claim: Option<&'c Claim>) -> Self {
        Self {
            now: inner.now(),
            queue: claim.map(|claim| claim.queue.as_str()),
            worker: claim.map(|claim| claim.worker.as_str()),
            process: claim.map_or(0, |claim| claim.process.0 as i64),
            max: claim.map_or(0, |claim| i32::try_from(claim.max).unwrap_or(i32::MAX)),
            lease: claim.map_or(0, |claim| millis(claim.lease)),
            begun: claim.map_or((None, 0), |claim| inner.floors.of(claim.queue.as_str())),
        }
    }

    fn params<'p>(&'p self, columns: &'p Columns) -> Vec<Param<'p>> {
        let mut params: Vec<Param<'p>> = vec![(&self.now, Type::INT8)];
        if columns.ids.is_empty() {
            params.extend(columns.no_tokens());
        } else {
            params.extend(columns.token_params());
        }
        params.extend(columns.decision_params());
        let claim: [Param<'p>; 5] = [
            (&self.queue, Type::TEXT),
            (&self.worker, Type::TEXT),
            (&self.process, Type::INT8),
            (&self.max, Type::INT4),
            (&self.lease, Type::INT8),
        ];
        params.extend(claim);
        match &self.begun.0 {
            Some(floor) => params.extend(floor.params()),
            None => params.extend(Floor::none()),
        }
        params
    }
}
