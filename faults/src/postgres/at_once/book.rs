//! What the callers were told, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};

use sickbay_core::port::{Pushed, Replayed};
use sickbay_core::settlement::Settled;
use sickbay_core::{LeaseToken, MessageId};

use super::deed::{Act, Answer};
use crate::dice::Dice;

/// What is known from answers alone.
#[derive(Default)]
pub(super) struct Book {
    pushed: BTreeSet<MessageId>,
    /// Completed, under which token.
    done: BTreeMap<MessageId, LeaseToken>,
    removed: BTreeSet<MessageId>,
    keyed: BTreeSet<MessageId>,
    /// Dead letters that were replayed.
    sent_back: BTreeSet<MessageId>,
    /// Dead letters that were discarded once: they may be purged.
    discarded: BTreeSet<MessageId>,
    /// Deliveries whose end nobody was told.
    held: Vec<LeaseToken>,
}

impl Book {
    /// All messages, in their order.
    pub(super) fn ids(&self) -> Vec<MessageId> {
        self.pushed.iter().copied().collect()
    }

    /// Some tokens, mostly of the newest deliveries.
    pub(super) fn tokens(&self, dice: &mut Dice, max: usize) -> Vec<LeaseToken> {
        let newest = &self.held[self.held.len().saturating_sub(6)..];
        let mut tokens = Vec::new();
        for _ in 0..=dice.roll(max) {
            if let Some(token) = newest.get(dice.roll(newest.len()))
                && !tokens.contains(token)
            {
                tokens.push(*token);
            }
        }
        tokens
    }

    /// Writes answers down that came between two looks, in whatever order. Answers what is wrong with them.
    pub(super) fn note_all(&mut self, answers: Vec<Answer>) -> Vec<String> {
        let exchanged = answers.iter().filter_map(|answer| match answer {
            Answer::Exchanged(_, exchanged) => Some(&exchanged.deliveries),
            _ => None,
        });
        let delivered = exchanged.flatten().map(|delivery| delivery.message.id);
        let over = delivered.filter(|id| self.is_over(*id));
        let mut wrong: Vec<_> =
            over.map(|id| format!("message {} came although it is over", id.number())).collect();
        wrong.extend(answers.into_iter().flat_map(|answer| self.note(answer)));
        wrong
    }

    fn note(&mut self, answer: Answer) -> Vec<String> {
        let mut wrong = Vec::new();
        match answer {
            Answer::Nothing => {}
            Answer::Pushed(messages, pushed) => {
                for (message, pushed) in messages.iter().zip(pushed) {
                    let Pushed::New(id) = pushed else { continue };
                    if !self.pushed.insert(id) {
                        wrong.push(format!("number {} was given twice", id.number()));
                    }
                    if message.key.is_some() {
                        self.keyed.insert(id);
                    }
                }
            }
            Answer::Exchanged(settle, exchanged) => {
                for ((token, act), settled) in settle.into_iter().zip(exchanged.settled) {
                    self.held.retain(|held| *held != token);
                    if act == Act::Complete
                        && settled == Settled::Applied
                        && self.done.insert(token.message, token).is_some()
                    {
                        wrong.push(format!("message {} was completed twice", token.message.number()));
                    }
                }
                self.held.extend(exchanged.deliveries.iter().map(|delivery| delivery.lease.token));
            }
            Answer::Cancelled(ids, answers) => {
                let gone = ids.into_iter().zip(answers).filter(|(_, answer)| *answer == Replayed::Done);
                self.removed.extend(gone.map(|(id, _)| id));
            }
            Answer::Discarded(ids, answers) => {
                let gone = ids.into_iter().zip(answers).filter(|(_, answer)| *answer == Replayed::Done);
                self.discarded.extend(gone.map(|(id, _)| id));
            }
            Answer::Replayed(ids, answers) => {
                let back = ids.into_iter().zip(answers).filter(|(_, answer)| *answer == Replayed::Done);
                self.sent_back.extend(back.map(|(id, _)| id));
            }
        }
        wrong
    }

    /// True of those that were sent back with a key that somebody else has meanwhile: they may be done without a
    /// delivery.
    fn may_be_a_duplicate(&self, id: MessageId) -> bool {
        self.sent_back.contains(&id) && self.keyed.contains(&id)
    }

    /// What should be there and is not, or the other way round.
    pub(super) fn compare(&self, present: &BTreeSet<u64>) -> Vec<String> {
        let gone =
            |id: &MessageId| self.is_over(*id) || self.may_be_a_duplicate(*id) || self.discarded.contains(id);
        let lost = self.pushed.iter().filter(|id| !gone(id) && !present.contains(&id.number()));
        let lost = lost.map(|id| format!("message {} is lost", id.number()));
        let back = self.removed.iter().filter(|id| present.contains(&id.number()));
        let back = back.map(|id| format!("message {} was removed and is there", id.number()));
        lost.chain(back).collect()
    }

    /// True of what is never delivered again.
    fn is_over(&self, id: MessageId) -> bool {
        self.done.contains_key(&id) || self.removed.contains(&id)
    }
}
