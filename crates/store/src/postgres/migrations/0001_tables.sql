-- Version 1. Every name is written with the schema `sickbay.`; another name replaces it when it is applied.

CREATE TABLE sickbay.meta (name text PRIMARY KEY, value bigint NOT NULL);
INSERT INTO sickbay.meta VALUES ('epoch', 1);

CREATE SEQUENCE sickbay.message_number;
CREATE SEQUENCE sickbay.claim_number;
CREATE SEQUENCE sickbay.dead_number;

CREATE TABLE sickbay.queue (
    no             integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           text    COLLATE "C" NOT NULL UNIQUE,
    policy         text    NOT NULL,
    paused         boolean NOT NULL DEFAULT false,
    -- What of the policy is needed here. Milliseconds.
    run_max        integer NOT NULL,
    key_window     bigint  NOT NULL,
    keep_completed bigint  NOT NULL,
    defers         boolean NOT NULL,
    holds          boolean NOT NULL
);

-- What the queues hold and what went through them: rows are only added, so nobody waits for anybody; the sweeper
-- adds them up.
CREATE TABLE sickbay.tally (
    queue       integer NOT NULL,
    live        bigint  NOT NULL DEFAULT 0,
    dead        bigint  NOT NULL DEFAULT 0,
    discarded   bigint  NOT NULL DEFAULT 0,
    pushed      bigint  NOT NULL DEFAULT 0,
    completed   bigint  NOT NULL DEFAULT 0,
    duplicates  bigint  NOT NULL DEFAULT 0,
    failures    bigint  NOT NULL DEFAULT 0,
    quarantined bigint  NOT NULL DEFAULT 0,
    replayed    bigint  NOT NULL DEFAULT 0,
    removed     bigint  NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE sickbay.type_gate (
    queue       integer  NOT NULL,
    type        text     COLLATE "C" NOT NULL,
    gate        smallint NOT NULL CHECK (gate BETWEEN 1 AND 3), -- 1 paused, 2 tripped, 3 probing
    probes_left bigint   NOT NULL,
    PRIMARY KEY (queue, type)
);

-- Messages that wait. Claims read lane 0 alone, in the order of its key: what cannot be claimed lies in another.
CREATE TABLE sickbay.waiting (
    queue           integer  NOT NULL,
    lane            smallint NOT NULL CHECK (lane BETWEEN 0 AND 3), -- 0 claimable, 1 behind in its stream, 2 gated type, 3 suspect
    rank            smallint NOT NULL CHECK (rank BETWEEN 0 AND 9), -- 9 - priority
    due_at          bigint   NOT NULL,
    id              bigint   NOT NULL,
    pushed_at       bigint   NOT NULL,
    deadline_at     bigint,
    checksum        bigint,                                         -- none: pushed by plain SQL
    first_failed_at bigint,
    last_epoch      bigint,
    last_claim      bigint,
    suspect         boolean  NOT NULL DEFAULT false,
    deferred        boolean  NOT NULL DEFAULT false,
    traces          boolean  NOT NULL DEFAULT false,                -- it has attempts or an original payload
    type            text     COLLATE "C",
    stream          text     COLLATE "C",
    key             text     COLLATE "C",
    -- deliveries, failures, crashes, charges, releases, expiries, replays, earlier, stages, cause; none: all zero
    facts           integer[],
    headers         bytea,
    payload         bytea    NOT NULL,
    PRIMARY KEY (queue, lane, rank, due_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.2);
ALTER TABLE sickbay.waiting ALTER payload SET STORAGE EXTERNAL;
CREATE INDEX waiting_id ON sickbay.waiting (id);
CREATE INDEX waiting_stream ON sickbay.waiting (queue, stream, deferred, id) WHERE stream IS NOT NULL;
CREATE INDEX waiting_gated ON sickbay.waiting (queue, type, rank, due_at, id) WHERE lane = 2;
CREATE INDEX waiting_suspect ON sickbay.waiting (queue, due_at) WHERE suspect;
CREATE INDEX waiting_failed ON sickbay.waiting (queue, (facts[2]), type) WHERE facts[2] > 0;

-- One row a claimed batch: who holds which messages, and the messages themselves as they were before the claim.
CREATE TABLE sickbay.lease (
    claim      bigint  PRIMARY KEY,
    epoch      bigint  NOT NULL,
    queue      integer NOT NULL,
    process    bigint  NOT NULL,
    worker     text    NOT NULL,
    claimed_at bigint  NOT NULL,
    until      bigint  NOT NULL,       -- the earliest of its members
    suspect    boolean NOT NULL,
    ids        bigint[] NOT NULL,      -- those still held
    untils     bigint[],               -- of each of them, if they differ
    special    bigint[],               -- those that leave more behind than their row
    rows       sickbay.waiting[] NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_scale_factor = 0.02,
        toast.autovacuum_vacuum_cost_delay = 0);
ALTER TABLE sickbay.lease ALTER rows SET STORAGE EXTERNAL;
ALTER TABLE sickbay.lease ALTER ids SET STORAGE EXTERNAL;
CREATE INDEX lease_until ON sickbay.lease (until);
CREATE INDEX lease_process ON sickbay.lease (process);
CREATE INDEX lease_suspect ON sickbay.lease (process) WHERE suspect;

CREATE TABLE sickbay.stream (
    queue  integer NOT NULL,
    key    text    COLLATE "C" NOT NULL,
    leased integer NOT NULL DEFAULT 0, -- how many of its entries are leased
    head   bigint,                     -- the entry in order that lies outside lane 1
    turns  bigint  NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE sickbay.hold (
    queue integer NOT NULL,
    key   text    COLLATE "C" NOT NULL,
    id    bigint  NOT NULL,
    since bigint  NOT NULL,
    PRIMARY KEY (queue, key, id)
);

CREATE TABLE sickbay.key (
    queue      integer  NOT NULL,
    key        text     COLLATE "C" NOT NULL,
    owner      bigint   NOT NULL,
    state      smallint NOT NULL CHECK (state BETWEEN 0 AND 2), -- 0 live, 1 done, 2 dead
    done_until bigint,
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX key_done ON sickbay.key (done_until) WHERE state = 1;

CREATE TABLE sickbay.origin (
    queue      integer NOT NULL,
    origin     bytea   NOT NULL,
    id         bigint  NOT NULL,
    adopted_at bigint  NOT NULL,
    PRIMARY KEY (queue, origin)
);
CREATE INDEX origin_adopted ON sickbay.origin (adopted_at);

-- Dead letters, with the messages as they were.
CREATE TABLE sickbay.dead (
    id             bigint  PRIMARY KEY,
    no             bigint  NOT NULL UNIQUE,
    queue          integer NOT NULL,
    type           text    COLLATE "C",
    stream         text    COLLATE "C",
    set_aside      text    NOT NULL,
    kind           text    NOT NULL,
    reason         text    COLLATE "C" NOT NULL,
    signature      bigint  NOT NULL,
    error          text    NOT NULL,
    error_lower    text,                -- none: the same
    quarantined_at bigint  NOT NULL,
    discarded_at   bigint,
    discarded_why  text,
    payload_bytes  bigint  NOT NULL,
    message        sickbay.waiting NOT NULL
);
CREATE INDEX dead_queue ON sickbay.dead (queue, no) WHERE discarded_at IS NULL;
CREATE INDEX dead_reason ON sickbay.dead (queue, reason) WHERE discarded_at IS NULL;
CREATE INDEX dead_signature ON sickbay.dead (signature, no) WHERE discarded_at IS NULL;
CREATE INDEX dead_discarded ON sickbay.dead (queue, discarded_at, id) WHERE discarded_at IS NOT NULL;

-- Every attempt that did not simply succeed.
CREATE TABLE sickbay.attempt (
    message    bigint   NOT NULL,
    no         bigint   GENERATED ALWAYS AS IDENTITY,
    number     integer  NOT NULL,
    started_at bigint   NOT NULL,
    ended_at   bigint   NOT NULL,
    worker     text     NOT NULL,
    ended      smallint NOT NULL, -- 0 failed, 1 quarantined, 2 crashed, 3 lease expired, 4 released, 5 replayed, 6 reset
    details    bytea,             -- failure, signature, running time, output
    PRIMARY KEY (message, no)
);

-- The bytes a message was pushed with, where a replay changed them.
CREATE TABLE sickbay.original (message bigint PRIMARY KEY, payload bytea NOT NULL);

-- Completed messages of queues that keep them.
CREATE TABLE sickbay.completed (id bigint PRIMARY KEY, expires_at bigint NOT NULL, message sickbay.waiting NOT NULL);
CREATE INDEX completed_expiry ON sickbay.completed (expires_at);

-- Which process claimed from which queue, and when last.
CREATE TABLE sickbay.presence (
    process bigint  NOT NULL,
    queue   integer NOT NULL,
    worker  text    NOT NULL,
    last    bigint  NOT NULL,
    PRIMARY KEY (process, queue)
) WITH (fillfactor = 50);

-- Programs that have the store open: who they are, and when they said so last.
CREATE TABLE sickbay.instance (
    process    bigint PRIMARY KEY,
    name       text   UNIQUE,
    opened_at  bigint NOT NULL,
    beat_at    bigint NOT NULL
) WITH (fillfactor = 50);

-- Queues that somebody waits for: only then is a push announced, because announcements take turns at the commit.
CREATE TABLE sickbay.waiter (
    queue   integer NOT NULL,
    process bigint  NOT NULL,
    until   bigint  NOT NULL,
    PRIMARY KEY (queue, process)
) WITH (fillfactor = 50);

-- A copy of another store that was begun here. Until it is complete, nobody works on this one.
CREATE TABLE sickbay.copy (
    one      integer PRIMARY KEY CHECK (one = 1),
    complete boolean NOT NULL,
    turns    bigint  NOT NULL,
    progress text    NOT NULL
);
