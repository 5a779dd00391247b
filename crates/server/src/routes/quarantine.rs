//! The quarantine: lists, and acts on many dead letters.

use axum::extract::{RawQuery, State};
use sickbay_core::port::{Replay, Replayed};
use sickbay_core::quarantine::{PageRequest, QuarantineFilter};
use sickbay_core::{MessageId, QueueName};

use super::{check_batch, messages};
use crate::api::Api;
use crate::extract::{Answer, Json};
use crate::wire::Problem;
use crate::wire::problem::Reaction;
use crate::wire::quarantine::{Bulk, BulkAnswer, DeadLetters, Filter, LeftOut, Query};

/// So many dead letters are acted on in one transaction.
const ROWS_MAX: u32 = 1000;
/// So many that were left out are named.
const LEFT_OUT_MAX: usize = 100;

pub(super) async fn list(
    State(api): State<Api>,
    RawQuery(query): RawQuery,
) -> Result<Answer<DeadLetters>, Problem> {
    let query = Query::read(query.as_deref().unwrap_or_default())?;
    let page = query.page();
    let filter: QuarantineFilter = query.filter.into();
    let rows = api.store().quarantine(&filter, page).await?;
    let count = if query.count { Some(api.store().quarantine_count(&filter).await?) } else { None };
    Ok(Answer(DeadLetters::new(rows, count)))
}

pub(super) async fn replay(
    State(api): State<Api>,
    Json(bulk): Json<Bulk>,
) -> Result<Answer<BulkAnswer>, Problem> {
    refuse(bulk.why.is_some(), "why")?;
    let verb = Verb::Replay { queue: bulk.queue.clone() };
    carry_out(&api, bulk, &verb).await
}

pub(super) async fn discard(
    State(api): State<Api>,
    Json(bulk): Json<Bulk>,
) -> Result<Answer<BulkAnswer>, Problem> {
    refuse(bulk.queue.is_some(), "queue")?;
    let verb = Verb::Discard { why: bulk.why.clone().unwrap_or_default() };
    carry_out(&api, bulk, &verb).await
}

pub(super) async fn restore(
    State(api): State<Api>,
    Json(bulk): Json<Bulk>,
) -> Result<Answer<BulkAnswer>, Problem> {
    refuse(bulk.queue.is_some(), "queue")?;
    refuse(bulk.why.is_some(), "why")?;
    carry_out(&api, bulk, &Verb::Restore).await
}

/// What is done to many.
enum Verb {
    Replay { queue: Option<QueueName> },
    Discard { why: String },
    Restore,
}

impl Verb {
    /// One transaction.
    async fn apply(&self, api: &Api, ids: Vec<MessageId>) -> Result<Vec<Replayed>, Problem> {
        Ok(match self {
            Self::Replay { queue } => {
                let replays = ids.into_iter().map(|id| Replay { queue: queue.clone(), ..Replay::raw(id) });
                api.store().replay(replays.collect()).await?
            }
            Self::Discard { why } => api.store().discard(ids, why.clone()).await?,
            Self::Restore => api.store().restore(ids).await?,
        })
    }
}

fn refuse(given: bool, field: &str) -> Result<(), Problem> {
    if given { Err(Problem::unreadable(format!("{field:?} means nothing here"))) } else { Ok(()) }
}

async fn carry_out(api: &Api, bulk: Bulk, verb: &Verb) -> Result<Answer<BulkAnswer>, Problem> {
    let mut answer = BulkAnswer::default();
    match (bulk.ids, bulk.filter) {
        (Some(_), Some(_)) => return Err(Problem::unreadable("give \"ids\" or a \"filter\", not both")),
        (Some(ids), None) => {
            check_batch(ids.len(), "ids")?;
            let ids = resolved(api, ids, &mut answer).await?;
            let outcomes = verb.apply(api, ids.clone()).await?;
            answer.add(&ids, outcomes);
        }
        (None, filter) => {
            let filter = filter.unwrap_or_default();
            if filter.is_empty() && !bulk.all {
                let detail = "neither ids nor a filter is given, which would mean every dead letter";
                let hint = "name some, or say \"all\": true if it is meant";
                return Err(Problem::new(Reaction::Invalid, "SB0027", detail).hint(hint));
            }
            let discarded = matches!(verb, Verb::Restore);
            through_pages(api, Filter { discarded, ..filter }, verb, &mut answer).await?;
        }
    }
    Ok(Answer(answer))
}

/// Whole ids for those that were given; what does not exist is counted.
async fn resolved(api: &Api, ids: Vec<String>, answer: &mut BulkAnswer) -> Result<Vec<MessageId>, Problem> {
    let mut whole = Vec::with_capacity(ids.len());
    for id in ids {
        match messages::resolve(api, &id).await {
            Ok(id) => whole.push(id),
            Err(problem) if problem.reaction == Reaction::NotFound => {
                answer.not_found += 1;
                answer.leave_out(&id, "there is no such message".to_owned());
            }
            Err(problem) => return Err(problem),
        }
    }
    Ok(whole)
}

/// Page after page, from the newest to the oldest: what comes back into quarantine meanwhile is newer
/// and not met again.
async fn through_pages(
    api: &Api,
    filter: Filter,
    verb: &Verb,
    answer: &mut BulkAnswer,
) -> Result<(), Problem> {
    let filter: QuarantineFilter = filter.into();
    let mut page = PageRequest { rows_max: ROWS_MAX, after: None };
    loop {
        let found = api.store().quarantine(&filter, page).await?;
        let ids: Vec<MessageId> = found.rows.iter().map(|row| row.id).collect();
        if !ids.is_empty() {
            let outcomes = verb.apply(api, ids.clone()).await?;
            answer.add(&ids, outcomes);
        }
        match found.next {
            Some(next) => page.after = Some(next),
            None => return Ok(()),
        }
    }
}

impl BulkAnswer {
    fn add(&mut self, ids: &[MessageId], outcomes: Vec<Replayed>) {
        for (id, outcome) in ids.iter().zip(outcomes) {
            match outcome {
                Replayed::Done => self.done += 1,
                Replayed::NotFound => {
                    self.not_found += 1;
                    self.leave_out(&id.to_string(), "there is no such message".to_owned());
                }
                Replayed::Refused { why } => {
                    self.refused += 1;
                    self.leave_out(&id.to_string(), why);
                }
            }
        }
    }

    fn leave_out(&mut self, id: &str, why: String) {
        if self.left_out.len() < LEFT_OUT_MAX {
            self.left_out.push(LeftOut { id: id.chars().take(60).collect(), why });
        }
    }
}
