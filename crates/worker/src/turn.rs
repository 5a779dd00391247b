//! Turns with the source: what is handed in and asked for, and what comes of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sickbay_core::port::{SourceError, Turn};
use sickbay_core::settlement::Settled;
use sickbay_core::{Delivery, ErrorKind, Settlement, StreamKey, Timestamp};

use crate::attend::effect_failed;
use crate::hands::{Batch, End, Hands, Outgoing, Rest, Work};
use crate::held::Held;
use crate::shared::Shared;

/// At most so many settlements are handed in and so many deliveries are asked for in one turn.
pub(crate) const TURN_MAX: usize = 512;
/// How long a claim waits at the source before it is made anew.
const WAIT: Duration = Duration::from_secs(60);
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// What a lane does next.
pub(crate) enum Step {
    /// A turn with the source.
    Turn(Plan),
    /// Nothing before this: the source failed.
    Backoff(Timestamp),
    /// Nothing until it is woken.
    Park,
    /// Nothing any more.
    End,
}

/// A turn to take.
pub(crate) struct Plan {
    lane: usize,
    turn: Turn,
    sent: Vec<Sent>,
    waits: bool,
}

/// A settlement on its way, and what is needed to hand it in again.
struct Sent {
    held: Arc<Held>,
    end: End,
    ran: Option<Duration>,
    again: Option<Box<Settlement>>,
    rest: Rest,
}

impl Sent {
    fn of(outgoing: Outgoing) -> (Settlement, Self) {
        let Outgoing { held, settlement, rest, .. } = outgoing;
        let end = End::of(&settlement.decision);
        let plain = end == End::Done && settlement.effect.is_none();
        let again = (!plain).then(|| Box::new(copy(&settlement)));
        let sent = Self { held, end, ran: settlement.ran, again, rest };
        (settlement, sent)
    }

    /// The turn failed and nobody knows how far it got: the token sees to it that the settlement
    /// takes effect once.
    fn again(self) -> Outgoing {
        let settlement = match self.again {
            Some(settlement) => *settlement,
            None => Settlement { ran: self.ran, ..Settlement::complete(self.held.token()) },
        };
        Outgoing::new(self.held, settlement, self.rest)
    }
}

/// The same settlement without its effect, which cannot be had twice: then the delivery is given back.
fn copy(settlement: &Settlement) -> Settlement {
    if settlement.effect.is_some() {
        return Settlement::release(settlement.token);
    }
    Settlement {
        token: settlement.token,
        decision: settlement.decision.clone(),
        stages: settlement.stages,
        signature: settlement.signature,
        ran: settlement.ran,
        output: settlement.output.clone(),
        effect: None,
        cascade: settlement.cascade,
    }
}

impl Shared {
    /// Says what a lane does next, after it has handed over what it concluded.
    pub(crate) fn plan(&self, lane: usize, batch: &mut Batch) -> Step {
        let stopping = self.stopping.is_up();
        let mut hands = self.hands();
        hands.merge(batch);
        if stopping {
            self.idle.notify_one();
        }
        if hands.turns_from > Timestamp::default() && self.timer.now() < hands.turns_from {
            return Step::Backoff(hands.turns_from);
        }
        let want = if stopping { 0 } else { hands.want(TURN_MAX as u32) };
        let waits = !hands.has_outgoing();
        if hands.recalling || (waits && (want == 0 || hands.waiting)) {
            if hands.outbox.is_empty() && self.closed.is_up() && hands.unsettled == 0 {
                return Step::End;
            }
            hands.parked.push(lane);
            return Step::Park;
        }
        let plan = self.take(&mut hands, lane, want, waits);
        self.wake(&mut hands);
        Step::Turn(plan)
    }

    fn take(&self, hands: &mut Hands, lane: usize, want: u32, waits: bool) -> Plan {
        hands.wanted += want;
        hands.waiting |= waits;
        let (settlements, sent) = hands.take_outgoing(lane, TURN_MAX).into_iter().map(Sent::of).unzip();
        let wait = if waits { WAIT } else { Duration::ZERO };
        Plan { lane, turn: Turn { settlements, want, wait }, sent, waits }
    }

    /// Takes the turn. A claim that waits is dropped when the worker stops or needs less: the source
    /// gives back what it would have got.
    pub(crate) async fn take_turn(&self, plan: Plan) {
        let Plan { lane, turn, sent, waits } = plan;
        let want = turn.want;
        let answer = if waits {
            tokio::select! {
                biased;
                answer = self.source.turn(turn) => answer,
                () = self.stopping.up() => Ok((Vec::new(), Vec::new())),
                () = self.recall.notified() => Ok((Vec::new(), Vec::new())),
            }
        } else {
            self.source.turn(turn).await
        };
        let failed = {
            let mut hands = self.hands();
            hands.wanted -= want;
            hands.settling[lane].clear();
            if waits {
                (hands.waiting, hands.recalling) = (false, false);
            }
            match answer {
                Err(error) => {
                    self.turn_failed(&mut hands, sent, &error);
                    Vec::new()
                }
                Ok((settled, deliveries)) => {
                    hands.failures_in_a_row = 0;
                    let failed = accept_settled(&mut hands, sent, settled);
                    self.accept_deliveries(&mut hands, deliveries);
                    if self.stopping.is_up() {
                        hands.empty_buffer();
                    }
                    failed
                }
            }
        };
        self.wake_for_outbox();
        for (held, rest, error) in failed {
            self.settle_as_failed(held, rest, error).await;
        }
    }

    /// What had to wait for the end of this turn may be handed in: this lane may run a handler first.
    fn wake_for_outbox(&self) {
        let mut hands = self.hands();
        if !hands.outbox.is_empty() {
            self.wake(&mut hands);
        }
    }

    fn accept_deliveries(&self, hands: &mut Hands, deliveries: Vec<Delivery>) {
        if deliveries.is_empty() {
            return;
        }
        let now = self.timer.now();
        if hands.room < hands.prefetch && hands.buffer.is_empty() && now >= hands.room_grows_from {
            hands.room = hands.prefetch.min(hands.room.saturating_mul(2).max(1));
        }
        let streams = deliveries.iter().any(|delivery| delivery.message.stream.is_some());
        let mut runs = HashMap::new();
        for part in deliveries.chunk_by(|one, next| one.token().claim == next.token().claim) {
            hands.expect(part[0].token().claim, part.len());
        }
        for delivery in deliveries {
            let held = Arc::new(Held::new(delivery, now));
            hands.register(&held);
            if streams {
                buffer_in_order(hands, &mut runs, held);
            } else {
                hands.buffer.push_back(Work { held, rest: None });
            }
        }
    }

    async fn settle_as_failed(&self, held: Arc<Held>, rest: Rest, error: String) {
        let concluded = effect_failed(self, &held, error).await;
        let mut hands = self.hands();
        hands.tally.effects_failed += 1;
        if let Some(settlement) = concluded.settlement {
            hands.outbox.push(Outgoing::new(held, settlement, None));
        }
        hands.release_rest(rest);
    }

    fn turn_failed(&self, hands: &mut Hands, sent: Vec<Sent>, error: &SourceError) {
        let stops = error.kind() == ErrorKind::Stop;
        hands.tally.source_errors += 1;
        hands.tally.last_error = Some(error.to_string());
        let factor = 1 << hands.failures_in_a_row.min(10);
        hands.failures_in_a_row = hands.failures_in_a_row.saturating_add(1);
        hands.turns_from = self.timer.now().plus((BACKOFF_MIN * factor).min(BACKOFF_MAX));
        hands.outbox.splice(0..0, sent.into_iter().map(Sent::again));
        if stops {
            self.stopping.raise();
            self.idle.notify_one();
        }
    }
}

/// Puts a delivery behind the one of the same stream that came with it, or into the buffer.
fn buffer_in_order(hands: &mut Hands, runs: &mut HashMap<StreamKey, usize>, held: Arc<Held>) {
    let place = hands.buffer.len();
    let head = held.delivery.message.stream.clone().map(|stream| *runs.entry(stream).or_insert(place));
    match head.and_then(|head| hands.buffer.get_mut(head)) {
        Some(head) => head.rest.get_or_insert_default().push_back(held),
        None => hands.buffer.push_back(Work { held, rest: None }),
    }
}

/// Does what follows from the source's answers; those whose effect failed are left to the caller.
fn accept_settled(
    hands: &mut Hands,
    sent: Vec<Sent>,
    settled: Vec<Settled>,
) -> Vec<(Arc<Held>, Rest, String)> {
    let mut failed = Vec::new();
    let answers = settled.into_iter().map(Some).chain(std::iter::repeat(None));
    for (sent, answer) in sent.into_iter().zip(answers) {
        match answer {
            Some(Settled::Applied) => {
                hands.tally.count(sent.end);
                hands.unregister(&sent.held);
                if let Some(next) = Work::next_of(sent.rest) {
                    hands.buffer.push_front(next);
                }
            }
            Some(Settled::EffectFailed { error }) => failed.push((sent.held, sent.rest, error)),
            Some(Settled::LeaseLost) | None => {
                hands.tally.lost += 1;
                hands.unregister(&sent.held);
                hands.release_rest(sent.rest);
            }
        }
    }
    failed
}
