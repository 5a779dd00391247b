-- Streams (contract 19-25). Whoever changes the entries of a stream has locked its row.

-- The gate of a type: 0 open, 1 closed and so until our transaction ends, 2 somebody opens it at this moment. Nobody is
-- waited for: who opens a gate waits for those that have its messages in hand.
CREATE OR REPLACE FUNCTION sickbay.gate_at(p_queue integer, p_type text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM sickbay.type_gate WHERE queue = p_queue AND type = p_type FOR KEY SHARE SKIP LOCKED;
    IF FOUND THEN
        RETURN 1;
    END IF;
    RETURN CASE WHEN EXISTS (SELECT 1 FROM sickbay.type_gate WHERE queue = p_queue AND type = p_type) THEN 2 ELSE 0 END;
END $$;

-- Where a message lies that its stream does not keep back. What comes while a gate is set or opened lies before it:
-- claims put it behind the gate, if there is one then.
CREATE OR REPLACE FUNCTION sickbay.lane_of(p_queue integer, p_type text, p_suspect boolean) RETURNS smallint
LANGUAGE plpgsql AS $$
BEGIN
    IF p_type IS NOT NULL AND sickbay.gate_at(p_queue, p_type) = 1 THEN
        RETURN 2;
    END IF;
    RETURN CASE WHEN p_suspect THEN 3 ELSE 0 END;
END $$;

-- Locks a stream, which is made if there is none.
CREATE OR REPLACE FUNCTION sickbay.lock_stream(p_queue integer, p_stream text) RETURNS sickbay.stream
LANGUAGE sql AS $$
    INSERT INTO sickbay.stream AS s (queue, key) VALUES (p_queue, p_stream)
    ON CONFLICT (queue, key) DO UPDATE SET turns = s.turns + 1 RETURNING *
$$;

-- Puts what can be claimed of a stream where claims look for it, and everything else where they do not. Forgets
-- an empty one.
CREATE OR REPLACE FUNCTION sickbay.refresh_stream(p_queue integer, p_stream text) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
DECLARE
    s sickbay.stream;
    v_first bigint;
    v_head bigint;
    v_deferred boolean := false;
    w record;
BEGIN
    SELECT * INTO s FROM sickbay.stream WHERE queue = p_queue AND key = p_stream;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF s.leased > 0 THEN
        UPDATE sickbay.waiting SET lane = 1 WHERE queue = p_queue AND stream = p_stream AND deferred AND lane <> 1;
        IF s.head IS NOT NULL THEN
            UPDATE sickbay.waiting SET lane = 1
            WHERE queue = p_queue AND stream = p_stream AND NOT deferred AND id = s.head AND lane <> 1;
            UPDATE sickbay.stream SET head = NULL WHERE queue = p_queue AND key = p_stream;
        END IF;
        RETURN;
    END IF;
    FOR w IN SELECT id, type, suspect, lane FROM sickbay.waiting
             WHERE queue = p_queue AND stream = p_stream AND deferred ORDER BY id LOOP
        v_deferred := true;
        IF w.lane = 1 THEN
            UPDATE sickbay.waiting SET lane = sickbay.lane_of(p_queue, w.type, w.suspect)
            WHERE queue = p_queue AND stream = p_stream AND deferred AND id = w.id;
        END IF;
    END LOOP;
    SELECT id INTO v_first FROM sickbay.waiting
    WHERE queue = p_queue AND stream = p_stream AND NOT deferred ORDER BY id LIMIT 1;
    IF v_first IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM sickbay.hold WHERE queue = p_queue AND key = p_stream AND id < v_first) THEN
        v_head := v_first;
    END IF;
    IF s.head IS DISTINCT FROM v_head THEN
        UPDATE sickbay.waiting SET lane = 1
        WHERE queue = p_queue AND stream = p_stream AND NOT deferred AND id = s.head AND lane <> 1;
        UPDATE sickbay.waiting SET lane = sickbay.lane_of(p_queue, type, suspect)
        WHERE queue = p_queue AND stream = p_stream AND NOT deferred AND id = v_head;
        UPDATE sickbay.stream SET head = v_head WHERE queue = p_queue AND key = p_stream;
    END IF;
    IF v_first IS NULL AND NOT v_deferred
       AND NOT EXISTS (SELECT 1 FROM sickbay.hold WHERE queue = p_queue AND key = p_stream) THEN
        DELETE FROM sickbay.stream WHERE queue = p_queue AND key = p_stream;
    END IF;
END $$;

-- Lets a blocked stream go on without its head. False if it was not blocked.
CREATE OR REPLACE FUNCTION sickbay.release_followers(p_queue text, p_stream text, p_now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    v_queue integer := sickbay.queue_no(p_queue);
    s sickbay.stream;
    w record;
BEGIN
    s := sickbay.lock_stream(v_queue, p_stream);
    DELETE FROM sickbay.hold WHERE queue = v_queue AND key = p_stream;
    IF NOT FOUND THEN
        SELECT id, due_at INTO w FROM sickbay.waiting
        WHERE queue = v_queue AND stream = p_stream AND NOT deferred ORDER BY id LIMIT 1;
        -- A leased entry in order is before every waiting one, because runs are taken from the front.
        IF w.id IS NULL OR w.due_at <= v_now OR sickbay.ordered_is_leased(v_queue, p_stream, s.leased, w.id) THEN
            PERFORM sickbay.refresh_stream(v_queue, p_stream);
            RETURN false;
        END IF;
        UPDATE sickbay.waiting SET deferred = true, lane = 1
        WHERE queue = v_queue AND stream = p_stream AND NOT deferred AND id = w.id;
        UPDATE sickbay.stream SET head = NULL WHERE queue = v_queue AND key = p_stream;
    END IF;
    PERFORM sickbay.refresh_stream(v_queue, p_stream);
    PERFORM sickbay.announce(v_queue);
    RETURN true;
END $$;

-- True if an entry in order before this one is leased.
CREATE OR REPLACE FUNCTION sickbay.ordered_is_leased(p_queue integer, p_stream text, p_leased integer, p_before bigint)
RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT p_leased > 0 AND EXISTS (
        SELECT 1 FROM sickbay.lease l, unnest(l.rows) r
        WHERE l.queue = p_queue AND r.id = ANY (l.ids) AND r.stream = p_stream AND NOT r.deferred AND r.id < p_before)
$$;
