-- Processes, sweeping and epochs (contract 16-18).

-- What a process holds now, locked: for the one who decides what becomes of it.
CREATE OR REPLACE FUNCTION sickbay.held_by(p_now bigint, p_process bigint)
RETURNS TABLE (epoch bigint, claim bigint, id bigint, queue text, policy text, type text, facts integer[])
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM sickbay.lease l WHERE l.process = p_process ORDER BY l.claim FOR UPDATE;
    PERFORM sickbay.expire(p_now, false);
    RETURN QUERY SELECT l.epoch, l.claim, x.id, q.name, q.policy, x.type, x.facts
        FROM sickbay.lease l JOIN sickbay.queue q ON q.no = l.queue, unnest(l.rows) x
        WHERE l.process = p_process AND x.id = ANY (l.ids) ORDER BY x.id;
END $$;

-- Which history of a database this is: another one after a standby took over, a backup was brought back, or it was
-- loaded elsewhere. None where the server does not tell.
CREATE OR REPLACE FUNCTION sickbay.history() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN hashtextextended((SELECT s.system_identifier FROM pg_control_system() s)::text || ' '
        || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), 0);
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- Begins a new epoch where the database's history is another one than before: the last of what was done may be missing,
-- so that numbers of claims are given a second time.
CREATE OR REPLACE FUNCTION sickbay.notice_takeover(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_history bigint := sickbay.history();
BEGIN
    UPDATE sickbay.meta SET value = v_history WHERE name = 'history' AND value <> v_history;
    IF FOUND THEN
        PERFORM sickbay.begin_epoch(p_now);
    ELSIF v_history IS NOT NULL THEN
        INSERT INTO sickbay.meta VALUES ('history', v_history) ON CONFLICT DO NOTHING;
    END IF;
END $$;

-- Does what time has made due. Where somebody else does it at this moment, nothing.
CREATE OR REPLACE FUNCTION sickbay.sweep(p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    v_real bigint := sickbay.time_now(NULL);
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('sickbay sweep'), 'sickbay.lease'::regclass::oid::integer) THEN
        RETURN false;
    END IF;
    PERFORM sickbay.notice_takeover(v_now);
    -- What was claimed, or locked by others, while an epoch began.
    UPDATE sickbay.lease SET until = v_now, untils = NULL WHERE claim = ANY (ARRAY(
        SELECT claim FROM sickbay.lease WHERE epoch < sickbay.epoch() AND until > v_now FOR UPDATE SKIP LOCKED));
    WHILE sickbay.expire(v_now, false) > 0 LOOP
    END LOOP;
    DELETE FROM sickbay.key WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM sickbay.key WHERE state = 1 AND done_until <= v_now LIMIT 10000 FOR UPDATE SKIP LOCKED));
    DELETE FROM sickbay.origin WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM sickbay.origin WHERE adopted_at <= v_now - sickbay.origin_window()
        LIMIT 10000 FOR UPDATE SKIP LOCKED));
    WITH gone AS (
        DELETE FROM sickbay.completed WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM sickbay.completed WHERE expires_at <= v_now LIMIT 10000 FOR UPDATE SKIP LOCKED))
        RETURNING id
    ) SELECT count(sickbay.forget(id)) FROM gone INTO STRICT v_real;
    v_real := sickbay.time_now(NULL);
    DELETE FROM sickbay.waiter WHERE until < v_real - 60000;
    DELETE FROM sickbay.presence WHERE last < v_now - 3600000;
    IF (SELECT count(*) FROM (SELECT 1 FROM sickbay.tally LIMIT 200) t) >= 200 THEN
        WITH gone AS (
            DELETE FROM sickbay.tally WHERE ctid = ANY (ARRAY(SELECT ctid FROM sickbay.tally FOR UPDATE SKIP LOCKED))
            RETURNING *
        ) INSERT INTO sickbay.tally SELECT queue, sum(live), sum(dead), sum(discarded), sum(pushed), sum(completed),
            sum(duplicates), sum(failures), sum(quarantined), sum(replayed), sum(removed) FROM gone GROUP BY queue;
    END IF;
    RETURN true;
END $$;

-- Waits until nobody sweeps, then sweeps.
CREATE OR REPLACE FUNCTION sickbay.sweep_now(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('sickbay sweep'), 'sickbay.lease'::regclass::oid::integer);
    PERFORM sickbay.sweep(p_now);
END $$;

-- Says that somebody waits for a queue, for so long by the database's clock.
CREATE OR REPLACE FUNCTION sickbay.wait_for(p_queue text, p_process bigint, p_ms bigint) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO sickbay.waiter VALUES (sickbay.queue_no(p_queue), p_process, sickbay.time_now(NULL) + p_ms)
    ON CONFLICT (queue, process) DO UPDATE SET until = greatest(sickbay.waiter.until, excluded.until)
$$;

-- Registers a program that opens the store. Answers the process that had its name before and never said goodbye.
CREATE OR REPLACE FUNCTION sickbay.open_instance(p_now bigint, p_process bigint, p_name text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    v_before bigint;
BEGIN
    PERFORM sickbay.notice_takeover(v_now);
    IF p_name IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('sickbay instance'), 'sickbay.lease'::regclass::oid::integer);
        DELETE FROM sickbay.instance WHERE name = p_name RETURNING process INTO v_before;
    END IF;
    INSERT INTO sickbay.instance VALUES (p_process, p_name, v_now, v_now);
    RETURN v_before;
END $$;

CREATE OR REPLACE FUNCTION sickbay.beat(p_now bigint, p_process bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE sickbay.instance SET beat_at = sickbay.time_now(p_now) WHERE process = p_process
$$;

-- The present epoch: no token of an earlier one counts. What is called for every batch asks the table itself.
CREATE OR REPLACE FUNCTION sickbay.epoch() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT value FROM sickbay.meta WHERE name = 'epoch'
$$;

-- Begins a new epoch: every lease ends, and no token of an earlier epoch counts any more.
CREATE OR REPLACE FUNCTION sickbay.begin_epoch(p_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_epoch bigint;
BEGIN
    UPDATE sickbay.meta SET value = value + 1 WHERE name = 'epoch' RETURNING value INTO v_epoch;
    PERFORM sickbay.expire(sickbay.time_now(p_now), true);
    DELETE FROM sickbay.presence;
    RETURN v_epoch;
END $$;
