//! The words in which a schedule is told.

use sickbay_core::NewMessage;
use sickbay_core::port::Pushed;

use super::deed::{Answer, Deed};

/// A message in a few words.
pub(super) fn describe(message: &NewMessage) -> String {
    let mut text = message.queue.to_string();
    let parts = [
        message.stream.as_ref().map(ToString::to_string),
        message.key.as_ref().map(ToString::to_string),
        message.message_type.as_ref().map(ToString::to_string),
    ];
    parts.into_iter().flatten().for_each(|part| text += &format!("/{part}"));
    text
}

/// A call in a few words.
pub(super) fn deed(deed: &Deed) -> String {
    match deed {
        Deed::Push(messages) => {
            format!("Push {}", messages.iter().map(describe).collect::<Vec<_>>().join(" "))
        }
        Deed::Exchange { settle, claim } => {
            let settle = settle
                .iter()
                .map(|(token, act)| format!("{}@{} {act:?}", token.message.number(), token.claim));
            let settle = settle.collect::<Vec<_>>().join(", ");
            let claim = claim.as_ref().map(|claim| {
                format!("claim {} of {} for process {}", claim.max, claim.queue, claim.process.0)
            });
            format!("Exchange [{settle}] {}", claim.unwrap_or_default())
        }
        other => format!("{other:?}"),
    }
}

/// An answer in a few words.
pub(super) fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Exchanged(_, exchanged) => {
            let got = exchanged.deliveries.iter();
            let got = got
                .map(|one| format!("{}@{}", one.message.id.number(), one.lease.token.claim))
                .collect::<Vec<_>>();
            format!("{:?}, gets {}", exchanged.settled, got.join(" "))
        }
        Answer::Pushed(_, pushed) => {
            let numbers = pushed.iter().map(|one| match one {
                Pushed::New(id) => format!("{}", id.number()),
                Pushed::Duplicate(id) => format!("={}", id.number()),
            });
            numbers.collect::<Vec<_>>().join(" ")
        }
        other => format!("{other:?}"),
    }
}
