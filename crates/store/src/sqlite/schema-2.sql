-- Version 2.
-- How many commits there were: a file that has fewer than its high-water mark says has lost its tail.
ALTER TABLE mark ADD COLUMN commits INTEGER NOT NULL DEFAULT 0;

-- Origins are forgotten after a while.
CREATE INDEX origin_adopted ON origin (adopted_at);

-- Suspects that a gate holds back come back before others.
CREATE INDEX waiting_held_suspect ON waiting (band >> 4, type, due_at) WHERE state = 2 AND suspect = 1;

-- A copy of another store that was begun here. Until it is complete, nobody works on this one.
CREATE TABLE copy (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    complete INTEGER NOT NULL,
    progress TEXT    NOT NULL
) STRICT;
