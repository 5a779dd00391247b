//! Dead letters (B1 to B3).

use sickbay_core::decide::SetAside;
use sickbay_core::id::IdPrefix;
use sickbay_core::quarantine::{PageRequest, QuarantineFilter};
use sickbay_core::signature::Signature;
use sickbay_core::{Failure, Kind, MessageId, MessageType, QueuePolicy, Reason, Settlement};

use super::bench::{Bench, code, good, message, queue, retry, retrying, seconds, stream};
use crate::fixture::Fixture;

/// B1.
pub async fn a_dead_letter_keeps_everything(f: &mut dyn Fixture) {
    let bench = Bench::with(f, retrying(2, 5)).await;
    let pushed_at = bench.now();
    let pushed = message(&b"bytes \xFF"[..])
        .message_type(MessageType::new("OrderPaid").unwrap_or_else(|error| panic!("{error}")))
        .header("a", "b");
    let id = bench.push(pushed.clone()).await;
    bench.advance(1).await;
    let delivery = bench.lease_one().await;
    bench.fail(&delivery, Failure::transient("first")).await;
    bench.advance(5).await;
    let last = bench.lease_one().await;
    bench.fail(&last, Failure::unknown("second\nwith a trace")).await;
    let view = bench.view(id).await;
    assert_eq!((&view.message.payload, &view.message.headers), (&pushed.payload, &pushed.headers));
    assert_eq!(view.last_delivery, Some(last.token().to_string()));
    let dead = view.dead.unwrap_or_else(|| panic!("not dead"));
    assert_eq!((dead.set_aside, dead.kind), (SetAside::MaxDeliveryCountExceeded, Kind::Poison));
    assert_eq!((dead.reason, dead.error.as_str()), (Reason::HandlerException, "second"));
    assert_eq!((dead.pushed_at, dead.first_failed_at), (pushed_at, pushed_at.plus(seconds(1))));
    assert_eq!((dead.last_failed_at, dead.quarantined_at), (bench.now(), bench.now()));
    assert_eq!((dead.payload_bytes, dead.counters.failures), (pushed.payload.len() as u64, 2));
    assert_eq!(view.history[1].failure.as_ref().map(|f| f.error.as_str()), Some("second\nwith a trace"));
    assert_eq!(bench.quarantine(QuarantineFilter::default()).await, [dead]);
}

/// B4.
pub async fn the_signature_of_a_settlement_is_kept_and_none_is_made_up_for(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let id = bench.push(message("a")).await;
    let delivery = bench.lease_one().await;
    let decision = bench.decide(&delivery, Failure::poison("x")).await;
    let signature = Signature::from_bits(u64::MAX - 5);
    let settlement = Settlement { signature: Some(signature), ..Settlement::new(delivery.token(), decision) };
    bench.settle(settlement).await;
    assert_eq!(bench.view(id).await.dead.map(|dead| dead.signature), Some(signature));
    let first = bench.dead(message("b")).await;
    let second = bench.dead(message("c")).await;
    let signature_of = async |id| bench.view(id).await.dead.map(|dead| dead.signature);
    assert_eq!(signature_of(first).await, signature_of(second).await, "the same failure, the same signature");
}

async fn three(bench: &Bench<'_>) -> Vec<MessageId> {
    let mail = MessageType::new("mail").unwrap_or_else(|error| panic!("{error}"));
    let mut ids = Vec::new();
    let failures = [
        Failure::poison("Timeout at node 7").reason(Reason::TimeoutExceeded),
        Failure::new(Kind::Transient, Reason::TransportUnavailable, "no route\nTRACE: socket.rs"),
        Failure::new(Kind::Unknown, Reason::HandlerException, "boom"),
    ];
    for (index, failure) in failures.into_iter().enumerate() {
        let mut next = message(format!("{index}"));
        next.message_type = (index == 0).then(|| mail.clone());
        next.stream = (index == 1).then(|| stream("s"));
        ids.push(bench.push(next).await);
        let delivery = bench.lease_one().await;
        bench.fail(&delivery, failure).await;
        bench.advance(10).await;
    }
    ids
}

/// B3.
pub async fn every_filter_finds_exactly_its_own(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let start = bench.now();
    let ids = three(&bench).await;
    let found = async |filter: QuarantineFilter| {
        let rows: Vec<_> = bench.quarantine(filter.clone()).await.iter().map(|row| row.id).collect();
        let count = good(bench.store().quarantine_count(&filter).await);
        assert_eq!(count, rows.len() as u64, "{filter:?}");
        rows
    };
    let all = QuarantineFilter::default;
    assert_eq!(found(all()).await, [ids[2], ids[1], ids[0]], "newest first");
    assert_eq!(found(QuarantineFilter { queue: Some(queue("q")), ..all() }).await.len(), 3);
    assert!(found(QuarantineFilter { queue: Some(queue("other")), ..all() }).await.is_empty());
    let mail = MessageType::new("mail").ok();
    assert_eq!(found(QuarantineFilter { message_type: mail, ..all() }).await, [ids[0]]);
    let reason = Some(Reason::TransportUnavailable);
    assert_eq!(found(QuarantineFilter { reason, ..all() }).await, [ids[1]]);
    assert_eq!(found(QuarantineFilter { kind: Some(Kind::Transient), ..all() }).await, [ids[1]]);
    assert_eq!(found(QuarantineFilter { stream: Some(stream("s")), ..all() }).await, [ids[1]]);
    let signature = bench.view(ids[2]).await.dead.map(|dead| dead.signature);
    assert_eq!(found(QuarantineFilter { signature, ..all() }).await, [ids[2]]);
    for (text, id) in [("TIMEOUT at", ids[0]), ("trace: SOCKET", ids[1])] {
        assert_eq!(
            found(QuarantineFilter { error_contains: Some(text.into()), ..all() }).await,
            [id],
            "{text}"
        );
    }
    assert!(found(QuarantineFilter { error_contains: Some("%_\"'".into()), ..all() }).await.is_empty());
    let (since, until) = (Some(start.plus(seconds(10))), Some(start.plus(seconds(20))));
    assert_eq!(found(QuarantineFilter { since, ..all() }).await, [ids[2], ids[1]]);
    assert_eq!(found(QuarantineFilter { until, ..all() }).await, [ids[1], ids[0]]);
    assert_eq!(found(QuarantineFilter { since, until, ..all() }).await, [ids[1]]);
    assert!(found(QuarantineFilter { discarded: true, ..all() }).await.is_empty());
}

/// Promise: every dead letter can be enumerated.
pub async fn pages_show_every_dead_letter_exactly_once(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let ids: Vec<_> =
        bench.push_all((0..25).map(|_| message("x")).collect()).await.iter().map(|p| p.id()).collect();
    let _ = bench.store().dead_letter(ids.clone(), "why".into()).await;
    let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = PageRequest { rows_max: 10, after };
        let page = good(bench.store().quarantine(&QuarantineFilter::default(), page).await);
        seen.extend(page.rows.iter().map(|row| row.id));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((seen.len(), pages), (25, 3));
    seen.sort_unstable();
    assert_eq!(seen, ids);
}

/// B3: a page that ends exactly at the end has no next one.
pub async fn a_page_that_holds_all_says_that_it_is_the_last(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    three(&bench).await;
    let page = PageRequest { rows_max: 3, after: None };
    let page = good(bench.store().quarantine(&QuarantineFilter::default(), page).await);
    assert_eq!((page.rows.len(), page.next), (3, None));
}

/// B1: poison does not block others (seed 003's first test).
pub async fn a_dead_letter_is_never_delivered(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    three(&bench).await;
    let fine = bench.push(message("fine")).await;
    bench.advance(1_000_000).await;
    assert_eq!(bench.lease_ids(100).await, [fine]);
    bench.f.crash();
    bench.advance(1_000_000).await;
    assert_eq!(bench.lease_ids(100).await, [fine]);
}

/// B2.
pub async fn a_message_is_found_by_the_beginning_of_its_id(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let ids: Vec<_> =
        bench.push_all((0..100).map(|_| message("x")).collect()).await.iter().map(|p| p.id()).collect();
    let find = async |text: &str| {
        let prefix: IdPrefix = text.parse().unwrap_or_else(|error| panic!("{error}"));
        bench.store().find(prefix).await
    };
    let view = good(find(&ids[41].short()).await).unwrap_or_else(|| panic!("not found"));
    assert_eq!(view.message.id, ids[41]);
    let crowded = ids.iter().map(|id| id.to_string()[..1].to_owned());
    let twice = crowded.clone().find(|first| crowded.clone().filter(|other| other == first).count() > 1);
    assert_eq!(code(find(&twice.unwrap_or_default()).await), "SB0010");
    let nobody = MessageId::from_number(1 << 50).unwrap_or(ids[0]);
    assert!(good(find(&nobody.to_string()).await).is_none());
}

/// B2: what is gone does not make a prefix ambiguous.
pub async fn a_prefix_of_messages_that_are_gone_finds_the_one_that_is_left(f: &mut dyn Fixture) {
    let bench = Bench::new(f).await;
    let pushed = bench.push_all((0..200).map(|_| message("x")).collect()).await;
    let ids: Vec<_> = pushed.iter().map(|p| p.id()).collect();
    let first = ids[0].to_string()[..1].to_owned();
    let same: Vec<_> = ids.iter().filter(|id| id.to_string().starts_with(&first)).copied().collect();
    assert!(same.len() > 1);
    let _ = bench.store().cancel(same[1..].to_vec()).await;
    let prefix: IdPrefix = first.parse().unwrap_or_else(|error| panic!("{error}"));
    let view = good(bench.store().find(prefix).await).unwrap_or_else(|| panic!("not found"));
    assert_eq!(view.message.id, ids[0]);
}

/// B1: history survives replays and crashes.
pub async fn the_history_survives_replays_and_crashes(f: &mut dyn Fixture) {
    let bench = Bench::with(f, QueuePolicy::default()).await;
    let id = bench.push(message("a")).await;
    for round in 0..3 {
        let delivery = bench.lease_one().await;
        bench.apply(&delivery, retry(0, Failure::transient(format!("round {round}")))).await;
        let delivery = bench.lease_one().await;
        bench.fail(&delivery, Failure::poison("end of the round")).await;
        let before = bench.view(id).await;
        bench.f.crash();
        assert_eq!(bench.view(id).await, before);
        bench.replay(id).await;
    }
    let history = bench.view(id).await.history;
    let numbers: Vec<_> = history.iter().map(|row| row.number).collect();
    assert_eq!(numbers, [1, 2, 2, 3, 4, 4, 5, 6, 6], "two deliveries and a replay in each round");
    assert_eq!(history[6].failure.as_ref().map(|failure| failure.error.as_str()), Some("round 2"));
}
