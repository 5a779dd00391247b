//! Deliveries end (contract 13–17): settlements as columns.

use bytes::BytesMut;
use sickbay_core::settlement::Settled;
use sickbay_core::signature::{Grouping, Signature, Subject};
use sickbay_core::{
    Decision, Failure, LeaseToken, MessageType, QueueName, QueuePolicy, Settlement, Stages, StoreError,
};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::Inner;
use super::call::Param;
use super::pack::Details;
use super::push::millis;
use crate::door;

/// What `settle.sql` calls an act.
pub(super) mod act {
    pub(in super::super) const COMPLETE: i16 = 0;
    pub(in super::super) const RETRY: i16 = 1;
    pub(in super::super) const RELEASE: i16 = 2;
    pub(in super::super) const REDELIVER: i16 = 3;
    pub(in super::super) const QUARANTINE: i16 = 4;
    pub(in super::super) const CRASHED: i16 = 5;
    pub(in super::super) const NOT_HANDED_OUT: i16 = 6;
    pub(in super::super) const CORRUPT: i16 = 7;
    pub(in super::super) const CRASHED_AND_QUARANTINED: i16 = 8;
}

/// Settlements, one vector a column.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) epochs: Vec<i64>,
    pub(super) claims: Vec<i64>,
    pub(super) ids: Vec<i64>,
    pub(super) acts: Vec<i16>,
    pub(super) after: Vec<i64>,
    pub(super) stages: Vec<i32>,
    pub(super) cascade: Vec<bool>,
    pub(super) details: Vec<Option<Vec<u8>>>,
    pub(super) set_aside: Vec<Option<&'static str>>,
    pub(super) kind: Vec<Option<&'static str>>,
    pub(super) reason: Vec<Option<&'static str>>,
    pub(super) error: Vec<Option<String>>,
    pub(super) error_lower: Vec<Option<String>>,
    pub(super) signature: Vec<Option<i64>>,
    pub(super) charged: Vec<bool>,
    /// More than completions without anything to add.
    pub(super) rich: bool,
    /// Where each one was before they were put in order.
    order: Option<Vec<usize>>,
}

/// Nothing, of whichever type.
#[derive(Debug)]
pub(super) struct Nothing;

impl ToSql for Nothing {
    fn to_sql(&self, _: &Type, _: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        Ok(IsNull::Yes)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl Columns {
    pub(super) fn add_token(&mut self, token: LeaseToken) {
        self.epochs.push(token.epoch as i64);
        self.claims.push(token.claim as i64);
        self.ids.push(token.message.number() as i64);
    }

    pub(super) fn add(&mut self, settlement: Settlement) {
        self.add_token(settlement.token);
        let output = settlement.output.as_deref().map(door::clean_output);
        let details = Details { signature: settlement.signature, ran: settlement.ran, output, failure: None };
        self.add_act(settlement.decision, details, settlement.stages, settlement.cascade);
    }

    pub(super) fn add_decision(&mut self, decision: Decision, signature: Option<Signature>, stages: Stages) {
        self.add_act(decision, Details { signature, ..Details::default() }, stages, false);
    }

    fn add_act(&mut self, decision: Decision, mut details: Details, stages: Stages, cascade: bool) {
        let (mut after, mut aside) = (0, None);
        let act = match decision {
            Decision::Complete => act::COMPLETE,
            Decision::Retry { after: wait, failure } => {
                after = millis(wait);
                details.failure = Some(door::clean(failure));
                act::RETRY
            }
            Decision::Release { after: wait } => {
                // A wait shorter than a millisecond is still a wait.
                after = if wait.is_zero() { 0 } else { millis(wait).max(1) };
                act::RELEASE
            }
            Decision::Redeliver => act::REDELIVER,
            Decision::Quarantine { set_aside, failure } => {
                details.failure = Some(door::clean(failure));
                aside = Some(set_aside.as_str());
                act::QUARANTINE
            }
        };
        self.rich |= act != act::COMPLETE || stages != Stages::NONE;
        self.after.push(after);
        self.stages.push(i32::from(stages.bits()));
        self.cascade.push(cascade);
        self.add_details(act, &details, aside, false);
    }

    /// What the act says of what went wrong.
    pub(super) fn add_details(
        &mut self,
        act: i16,
        details: &Details,
        set_aside: Option<&'static str>,
        charged: bool,
    ) {
        let aside = set_aside.and(details.failure.as_ref());
        self.acts.push(act);
        self.set_aside.push(set_aside);
        self.kind.push(aside.map(|failure| failure.kind.as_str()));
        self.reason.push(aside.map(|failure| failure.reason.as_str()));
        self.error.push(aside.map(|failure| failure.error.clone()));
        self.error_lower.push(aside.and_then(|failure| lower(&failure.error)));
        self.signature.push(details.signature.map(|signature| signature.to_bits() as i64));
        self.details.push(if act == act::COMPLETE { None } else { details.pack() });
        self.charged.push(charged);
    }

    /// An act of the store's own.
    pub(super) fn add_own(
        &mut self,
        token: LeaseToken,
        act: i16,
        details: &Details,
        set_aside: Option<&'static str>,
        charged: bool,
    ) {
        self.add_token(token);
        self.rich = true;
        self.after.push(0);
        self.stages.push(0);
        self.cascade.push(false);
        self.add_details(act, details, set_aside, charged);
    }

    /// Plain completions go together: each there once, in order, and with one claim for all where they are of one.
    pub(super) fn put_in_order(&mut self) {
        if self.rich {
            return;
        }
        let mut order: Vec<usize> = (0..self.ids.len()).collect();
        order.sort_unstable_by_key(|at| self.ids[*at]);
        // The second of two alike is refused: that is for the way on which each is looked at.
        self.rich = order.windows(2).any(|pair| self.ids[pair[0]] == self.ids[pair[1]]);
        if self.rich {
            return;
        }
        for column in [&mut self.ids, &mut self.claims, &mut self.epochs] {
            *column = order.iter().map(|at| column[*at]).collect();
        }
        let same = |column: &[i64]| column.windows(2).all(|pair| pair[0] == pair[1]);
        if same(&self.claims) && same(&self.epochs) {
            self.claims.truncate(1);
            self.epochs.truncate(1);
        }
        self.order = Some(order);
    }

    /// Answers in the order in which the settlements came.
    pub(super) fn as_given(&self, answers: Vec<Settled>) -> Vec<Settled> {
        let Some(order) = &self.order else { return answers };
        let mut given = vec![Settled::LeaseLost; answers.len()];
        for (answer, at) in answers.into_iter().zip(order) {
            given[*at] = answer;
        }
        given
    }

    pub(super) fn token_params(&self) -> [Param<'_>; 3] {
        [(&self.epochs, Type::INT8_ARRAY), (&self.claims, Type::INT8_ARRAY), (&self.ids, Type::INT8_ARRAY)]
    }

    /// That there is nothing to settle.
    pub(super) fn no_tokens(&self) -> [Param<'_>; 3] {
        [(); 3].map(|()| -> Param<'_> { (&Nothing, Type::INT8_ARRAY) })
    }

    /// Everything but the tokens and the charge. Nothing at all where all are plain completions.
    pub(super) fn decision_params(&self) -> [Param<'_>; 11] {
        let text = Type::TEXT_ARRAY;
        let params: [Param<'_>; 11] = [
            (&self.acts, Type::INT2_ARRAY),
            (&self.after, Type::INT8_ARRAY),
            (&self.stages, Type::INT4_ARRAY),
            (&self.cascade, Type::BOOL_ARRAY),
            (&self.details, Type::BYTEA_ARRAY),
            (&self.set_aside, text.clone()),
            (&self.kind, text.clone()),
            (&self.reason, text.clone()),
            (&self.error, text.clone()),
            (&self.error_lower, text),
            (&self.signature, Type::INT8_ARRAY),
        ];
        if self.rich { params } else { params.map(|(_, kind)| -> Param<'_> { (&Nothing, kind) }) }
    }
}

/// The text in small letters, by the rules of every language and not by those of the database's locale;
/// none if it is the same.
pub(super) fn lower(text: &str) -> Option<String> {
    Some(text.to_lowercase()).filter(|lower| lower != text)
}

/// What failures of this kind have in common, where the settlement did not say.
pub(super) fn signature(
    queue: &QueueName,
    message_type: Option<&MessageType>,
    failure: &Failure,
    policy: &QueuePolicy,
) -> Signature {
    Grouping::new(&policy.grouping).signature(&Subject {
        queue: queue.as_str(),
        message_type: message_type.map(MessageType::as_str),
        reason: failure.reason.as_str(),
        text: &failure.error,
        schema_path: failure.schema_path.as_deref(),
    })
}

/// Their queues and types, on which signatures depend.
pub(super) const TYPES: &str = "SELECT id, queue, type FROM sickbay.types_of($1)";

impl Inner {
    /// Finds out the signatures that quarantining settlements did not bring along: they depend on the queue's
    /// rules and the message's type.
    pub(super) async fn complete_signatures(&self, settlements: &mut [Settlement]) -> Result<(), StoreError> {
        let lacks = |settlement: &Settlement| {
            settlement.signature.is_none() && matches!(settlement.decision, Decision::Quarantine { .. })
        };
        let lacking = settlements.iter().filter(|settlement| lacks(settlement));
        let ids: Vec<i64> = lacking.map(|settlement| settlement.token.message.number() as i64).collect();
        if ids.is_empty() {
            return Ok(());
        }
        for row in self.query(TYPES, &[(&ids, Type::INT8_ARRAY)]).await? {
            let (id, queue, message_type) = (row.get::<_, i64>(0), row.get::<_, &str>(1), row.get(2));
            let queue = QueueName::new(queue).map_err(|error| super::row::odd(&error))?;
            let message_type = super::row::name::<MessageType>(message_type)?;
            let policy = self.policy_of(queue.as_str()).await?;
            for settlement in settlements.iter_mut().filter(|settlement| lacks(settlement)) {
                if settlement.token.message.number() as i64 != id {
                    continue;
                }
                if let Decision::Quarantine { failure, .. } = &settlement.decision {
                    let failure = door::clean(failure.clone());
                    settlement.signature = Some(signature(&queue, message_type.as_ref(), &failure, &policy));
                }
            }
        }
        Ok(())
    }
}
