-- Version 3.
-- The time of the last commit: schedules are moved if the machine's clock has been set back since.
ALTER TABLE mark ADD COLUMN last_at INTEGER NOT NULL DEFAULT 0;
