//! Records of a store: what is in them, and what is not.

use bytes::Bytes;
use sickbay_core::port::{Identity, Progress};
use sickbay_core::quarantine::{Attempt, AttemptEnd};
use sickbay_core::record::{
    Body, CompletedRecord, Flow, GateRecord, KeyRecord, KeyState, Marks, Record, RecordKind, WaitingRecord,
};
use sickbay_core::stats::TypeGate;
use sickbay_core::{
    Cause, Counters, Key, Message, MessageId, MessageType, Priority, QueueName, Stages, Timestamp,
};

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

/// A message to which nothing has happened.
fn body() -> Body {
    let message = Message {
        id: MessageId::from_number(7).unwrap(),
        queue: queue(),
        message_type: None,
        stream: None,
        key: None,
        priority: Priority::default(),
        pushed_at: Timestamp::from_millis(1),
        deadline_at: None,
        headers: Vec::new(),
        payload: Bytes::from_static(b"12345"),
    };
    Body {
        message,
        damaged: false,
        original_payload: None,
        counters: Counters::default(),
        stages: Stages::NONE,
        cause: None,
        first_failed_at: None,
        history: Vec::new(),
    }
}

fn attempt() -> Attempt {
    Attempt {
        number: 1,
        started_at: Timestamp::from_millis(2),
        ended_at: Timestamp::from_millis(3),
        worker: "w".to_owned(),
        end: AttemptEnd::Failed,
        failure: None,
        signature: None,
        ran: None,
        output: None,
    }
}

#[test]
fn a_message_is_untouched_until_anything_at_all_has_happened_to_it() {
    assert!(body().is_untouched());
    let touches: [fn(&mut Body); 6] = [
        |body| body.counters.deliveries = 1,
        |body| body.stages = Stages::STORED,
        |body| body.cause = Some(Cause::Failed),
        |body| body.first_failed_at = Some(Timestamp::from_millis(2)),
        |body| body.history.push(attempt()),
        |body| body.original_payload = Some(Bytes::from_static(b"123")),
    ];
    for (nth, touch) in touches.into_iter().enumerate() {
        let mut touched = body();
        touch(&mut touched);
        assert!(!touched.is_untouched(), "{nth}");
    }
}

#[test]
fn both_payloads_of_a_mended_message_count() {
    assert_eq!(body().bytes(), 5);
    let mended = Body { original_payload: Some(Bytes::from_static(b"123")), ..body() };
    assert_eq!(mended.bytes(), 8);
}

#[test]
fn what_went_through_a_queue_is_told_in_one_order() {
    let flow =
        Flow { pushed: 1, completed: 2, duplicates: 3, failures: 4, quarantined: 5, replayed: 6, removed: 7 };
    assert_eq!(flow.figures(), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_record_knows_its_kind_its_queue_and_the_message_in_it() {
    let waiting =
        WaitingRecord { body: body(), due_at: Timestamp::default(), suspect: false, deferred: false };
    let completed = CompletedRecord { body: body(), expires_at: Timestamp::default() };
    let gate = GateRecord {
        queue: queue(),
        message_type: MessageType::new("mail").unwrap(),
        gate: TypeGate::Paused,
    };
    let owner = MessageId::from_number(7).unwrap();
    let key = KeyRecord { queue: queue(), key: Key::new("k").unwrap(), owner, state: KeyState::Dead };
    let records = [
        (Record::Waiting(Box::new(waiting)), RecordKind::Waiting, true),
        (Record::Completed(Box::new(completed)), RecordKind::Completed, true),
        (Record::Gate(gate), RecordKind::Gate, false),
        (Record::Key(key), RecordKind::Key, false),
    ];
    for (record, kind, has_body) in records {
        assert_eq!((record.kind(), record.queue()), (kind, &queue()));
        assert_eq!(record.body().cloned(), has_body.then(body));
    }
}

#[test]
fn the_progress_of_a_copy_counts_its_turns_and_records() {
    let source = Identity { store: "a".to_owned(), marks: Marks::default(), moved: 5 };
    let begun = Progress::begin(&source);
    assert_eq!((begun.turns, begun.records), (0, 0));
    let once = begun.turned(begun.step.clone(), 3);
    let twice = once.turned(once.step.clone(), 4);
    assert_eq!((twice.turns, twice.records, twice.source), (2, 7, source));
}
