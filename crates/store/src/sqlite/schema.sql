-- Version 1.
-- A message's place (its rowid) is queue << 45 | (9 - priority) << 41 | fresh << 40 | number: the messages of one
-- queue and priority lie side by side in the order of their numbers, so a claim reads them without an index.

CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE queue (
    no     INTEGER PRIMARY KEY,
    name   TEXT    NOT NULL UNIQUE,
    policy TEXT    NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0
) STRICT;

-- What the queues hold and what went through them; one row a queue, written by every commit that touches it.
CREATE TABLE tally (
    queue       INTEGER PRIMARY KEY,
    live        INTEGER NOT NULL,
    active      INTEGER NOT NULL,
    dead        INTEGER NOT NULL,
    discarded   INTEGER NOT NULL,
    pushed      INTEGER NOT NULL,
    completed   INTEGER NOT NULL,
    duplicates  INTEGER NOT NULL,
    failures    INTEGER NOT NULL,
    quarantined INTEGER NOT NULL,
    replayed    INTEGER NOT NULL,
    removed     INTEGER NOT NULL
) STRICT;

-- The last numbers given to a message and to a dead letter: they never go back.
CREATE TABLE mark (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    last_number INTEGER NOT NULL,
    last_dead   INTEGER NOT NULL
) STRICT;
INSERT INTO mark VALUES (1, 0, 0);

CREATE TABLE type (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE type_gate (
    queue INTEGER NOT NULL,
    type  INTEGER NOT NULL,
    gate  INTEGER NOT NULL CHECK (gate BETWEEN 1 AND 3),  -- 1 paused, 2 tripped, 3 probing
    probes_left INTEGER NOT NULL,
    PRIMARY KEY (queue, type)
) STRICT, WITHOUT ROWID;

-- Messages that wait or are leased. Rows never change.
CREATE TABLE message (
    place       INTEGER PRIMARY KEY,
    type        INTEGER,
    pushed_at   INTEGER NOT NULL,
    deadline_at INTEGER,
    stream      INTEGER,
    key         TEXT,
    headers     BLOB,
    checksum    INTEGER NOT NULL,
    payload     BLOB NOT NULL
) STRICT;

-- What is known beyond the message row of those that are not simply next: delayed, failed, given back, heads of
-- streams, suspects, held types. A fresh message has no row here.
CREATE TABLE waiting (
    place       INTEGER PRIMARY KEY,
    number      INTEGER NOT NULL,
    band        INTEGER NOT NULL,                               -- queue << 4 | (9 - priority)
    state       INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5), -- 0 due, 1 leased, 2 type held, 3 blocked, 4 suspect, 5 due and in memory
    due_at      INTEGER NOT NULL,
    type        INTEGER,
    claim       INTEGER,                                        -- who holds it if leased, otherwise the last claim that ended
    deliveries  INTEGER NOT NULL,
    failures    INTEGER NOT NULL,
    suspect     INTEGER NOT NULL,
    facts       BLOB NOT NULL,                                  -- the other counters, stages, cause, first failure
    history     BLOB                                            -- every attempt, packed
) STRICT;
CREATE INDEX waiting_due ON waiting (band, due_at, number) WHERE state = 0;
CREATE INDEX waiting_held ON waiting (band >> 4, type, due_at) WHERE state = 2;
CREATE INDEX waiting_suspect ON waiting (place) WHERE state = 4;

-- One row a claimed batch: who holds which messages. It makes a delivery durable before its handler runs.
CREATE TABLE claim (
    no         INTEGER PRIMARY KEY,
    process    INTEGER NOT NULL,
    worker     TEXT    NOT NULL,
    claimed_at INTEGER NOT NULL,
    places     BLOB    NOT NULL,
    again      BLOB                                             -- those of them whose rows in `waiting` were left as they are
) STRICT;

CREATE TABLE stream (
    no    INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    key   TEXT    NOT NULL,
    UNIQUE (queue, key)
) STRICT;

CREATE TABLE entry (
    stream   INTEGER NOT NULL,
    deferred INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    place    INTEGER NOT NULL,
    due_at   INTEGER NOT NULL,
    PRIMARY KEY (stream, deferred, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE hold (
    stream INTEGER NOT NULL,
    number INTEGER NOT NULL,
    since  INTEGER NOT NULL,
    PRIMARY KEY (stream, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE key (
    queue INTEGER NOT NULL,
    key   TEXT    NOT NULL,
    owner INTEGER NOT NULL,
    state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 2), -- 0 live, 1 done, 2 dead
    done_until INTEGER,
    PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX key_done ON key (done_until) WHERE state = 1;

CREATE TABLE origin (
    queue  INTEGER NOT NULL,
    origin TEXT    NOT NULL,
    number INTEGER NOT NULL,
    adopted_at INTEGER NOT NULL,
    PRIMARY KEY (queue, origin)
) STRICT, WITHOUT ROWID;

-- Dead letters. Their messages stay where they lie, behind the cursors: to be set aside moves no payload.
CREATE TABLE dead (
    no          INTEGER PRIMARY KEY,
    place       INTEGER NOT NULL UNIQUE,
    queue       INTEGER NOT NULL,
    type        INTEGER,
    stream_key  TEXT,
    set_aside   TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    signature   INTEGER NOT NULL,
    error       TEXT    NOT NULL,
    deliveries  INTEGER NOT NULL,
    failures    INTEGER NOT NULL,
    facts       BLOB    NOT NULL,
    history     BLOB,
    last_delivery   TEXT,
    pushed_at       INTEGER NOT NULL,
    quarantined_at  INTEGER NOT NULL,
    discarded_at    INTEGER,
    discarded_why   TEXT,
    payload_bytes   INTEGER NOT NULL
) STRICT;
CREATE INDEX dead_queue ON dead (queue, no) WHERE discarded_at IS NULL;
CREATE INDEX dead_signature ON dead (signature, no) WHERE discarded_at IS NULL;
CREATE INDEX dead_discarded ON dead (queue, discarded_at, no) WHERE discarded_at IS NOT NULL;

-- How many dead letters of a queue have which reason.
CREATE TABLE reason_tally (
    queue  INTEGER NOT NULL,
    reason TEXT    NOT NULL,
    dead   INTEGER NOT NULL,
    PRIMARY KEY (queue, reason)
) STRICT, WITHOUT ROWID;

-- What follows the first line of a long error, once for all attempts that share it.
CREATE TABLE trace (hash INTEGER PRIMARY KEY, uses INTEGER NOT NULL, text TEXT NOT NULL) STRICT;

-- The bytes a message was pushed with, where a replay changed them.
CREATE TABLE original (message INTEGER PRIMARY KEY, payload BLOB NOT NULL) STRICT;

-- Completed messages of queues that keep them.
CREATE TABLE completed (
    number      INTEGER PRIMARY KEY,
    expires_at  INTEGER NOT NULL,
    deliveries  INTEGER NOT NULL,
    failures    INTEGER NOT NULL,
    facts       BLOB    NOT NULL,
    history     BLOB,
    place       INTEGER NOT NULL,
    type        INTEGER,
    pushed_at   INTEGER NOT NULL,
    deadline_at INTEGER,
    stream_key  TEXT,
    key         TEXT,
    headers     BLOB,
    checksum    INTEGER NOT NULL,
    payload     BLOB    NOT NULL
) STRICT;
CREATE INDEX completed_expiry ON completed (expires_at);
