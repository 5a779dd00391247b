//! The orders of the demo: mostly good, and every kind of bad.

use serde::{Deserialize, Serialize};
use sickbay::{Invalid, Key, Message, MessageType, NewMessage, QueueName};

/// What happens to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fate {
    /// It is paid.
    Good,
    /// It is paid once the bank is back.
    BankAway,
    /// The same event was sent before.
    Duplicate,
    /// A field is missing.
    Incomplete,
    /// The amount is negative.
    Negative,
    /// Nobody knows this type.
    UnknownType,
    /// The bank says no, for good.
    BankRefuses,
    /// The handler never comes back.
    Overrun,
    /// It kills the process that handles it.
    Killer,
}

/// The fate of order `number` of `count`.
pub(super) fn fate(number: u64, count: u64) -> Fate {
    match number {
        n if n == count / 2 => Fate::Killer,
        n if n % 50 == 7 => Fate::Duplicate,
        n if n % 97 == 5 => Fate::Incomplete,
        n if n % 131 == 9 => Fate::Negative,
        n if n % 199 == 11 => Fate::UnknownType,
        n if n % 173 == 13 => Fate::BankRefuses,
        n if n % 1999 == 17 => Fate::Overrun,
        n if n % 10 == 3 => Fate::BankAway,
        _ => Fate::Good,
    }
}

/// An order as it is sent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Order {
    pub(super) event_id: String,
    pub(super) order_id: String,
    pub(super) user_id: Option<String>,
    pub(super) bank: String,
    pub(super) amount_cents: i64,
}

fn amount(number: u64) -> i64 {
    (number * 37 % 9900 + 100).cast_signed()
}

/// What the ledger should hold when everything that can be paid is paid.
pub(super) fn expected(count: u64) -> i64 {
    let paid = (0..count).filter(|number| matches!(fate(*number, count), Fate::Good | Fate::BankAway));
    paid.map(amount).sum()
}

/// Message `number` of `count`.
pub(super) fn message(queue: &QueueName, number: u64, count: u64) -> anyhow::Result<NewMessage> {
    let fate = fate(number, count);
    // The one before a duplicate is always sent before it, and never one itself.
    let event = if fate == Fate::Duplicate { number - 1 } else { number };
    let bank = match fate {
        Fate::BankAway => "north",
        Fate::BankRefuses => "closed-account",
        Fate::Overrun => "sleepy",
        Fate::Killer => "killer",
        _ => "south",
    };
    let order = Order {
        event_id: format!("evt-{event:06}"),
        order_id: format!("ord-{event:06}"),
        user_id: (fate != Fate::Incomplete).then(|| format!("usr-{:04}", event % 977)),
        bank: bank.to_owned(),
        amount_cents: if fate == Fate::Negative { -amount(event) } else { amount(event) },
    };
    let message_type = if fate == Fate::UnknownType { "OrderMelted" } else { "OrderPaid" };
    Ok(NewMessage::new(queue.clone(), serde_json::to_vec(&order)?)
        .message_type(MessageType::new(message_type)?)
        .key(Key::new(&order.event_id)?))
}

/// What the queue accepts.
pub(super) fn validate(message: &Message) -> Result<(), Invalid> {
    let order: Order =
        serde_json::from_slice(&message.payload).map_err(|e| Invalid::unreadable(e.to_string()))?;
    if order.user_id.is_none() {
        return Err(Invalid::new("userId is missing").at("/userId"));
    }
    if order.amount_cents <= 0 {
        return Err(Invalid::new(format!("amountCents must be positive, not {}", order.amount_cents))
            .at("/amountCents"));
    }
    Ok(())
}
