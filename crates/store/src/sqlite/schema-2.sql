-- Version 2.
-- How many commits there were: a file that has fewer than its high-water mark says has lost its tail.
ALTER TABLE mark ADD COLUMN commits INTEGER NOT NULL DEFAULT 0;
