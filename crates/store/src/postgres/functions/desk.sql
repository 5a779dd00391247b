-- Operators' acts (contract 24-29). Each answers one word a message: done, missing, or the status that forbids it.

-- Locks a stream that most probably is locked by us already, or was forgotten.
CREATE OR REPLACE FUNCTION sickbay.keep_stream(p_queue integer, p_stream text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM sickbay.stream WHERE queue = p_queue AND key = p_stream FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM sickbay.lock_stream(p_queue, p_stream);
    END IF;
END $$;

-- Where a message is, locked after its stream: waiting, leased, dead, discarded or missing.
CREATE OR REPLACE FUNCTION sickbay.locate(p_id bigint, OUT place text, OUT r sickbay.waiting, OUT claim bigint)
LANGUAGE plpgsql AS $$
DECLARE
    f record;
BEGIN
    FOR turn IN 1..5 LOOP
        SELECT w.queue, w.stream INTO f FROM sickbay.waiting w WHERE w.id = p_id;
        IF FOUND THEN
            IF f.stream IS NOT NULL THEN
                PERFORM sickbay.keep_stream(f.queue, f.stream);
            END IF;
            SELECT w.* INTO r FROM sickbay.waiting w WHERE w.id = p_id FOR UPDATE;
            IF FOUND THEN
                place := 'waiting';
                RETURN;
            END IF;
            CONTINUE;
        END IF;
        SELECT l.claim INTO claim FROM sickbay.lease l WHERE l.ids @> ARRAY[p_id];
        IF FOUND THEN
            PERFORM 1 FROM sickbay.lease l WHERE l.claim = locate.claim AND l.ids @> ARRAY[p_id] FOR UPDATE;
            IF FOUND THEN
                SELECT (x).* INTO r FROM sickbay.lease l, unnest(l.rows) x WHERE l.claim = locate.claim AND x.id = p_id;
                IF r.stream IS NOT NULL THEN
                    PERFORM sickbay.keep_stream(r.queue, r.stream);
                END IF;
                place := 'leased';
                RETURN;
            END IF;
            CONTINUE;
        END IF;
        claim := NULL;
        SELECT d.queue, d.stream INTO f FROM sickbay.dead d WHERE d.id = p_id;
        IF FOUND THEN
            IF f.stream IS NOT NULL THEN
                PERFORM sickbay.keep_stream(f.queue, f.stream);
            END IF;
            SELECT CASE WHEN d.discarded_at IS NULL THEN 'dead' ELSE 'discarded' END INTO place
            FROM sickbay.dead d WHERE d.id = p_id FOR UPDATE;
            IF FOUND THEN
                SELECT (d.message).* INTO r FROM sickbay.dead d WHERE d.id = p_id;
                RETURN;
            END IF;
        END IF;
    END LOOP;
    place := 'missing';
END $$;

-- Locks what an act on these messages needs, in the one order that holds everywhere: leases, streams, messages, keys.
-- False if one of them came into other hands meanwhile, so that its lease would be locked too late.
CREATE OR REPLACE FUNCTION sickbay.locks_messages(p_ids bigint[], p_targets text[]) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
    s record;
    v_claims bigint[];
    v_made sickbay.stream[] := '{}';
    v_stream sickbay.stream;
BEGIN
    v_claims := ARRAY(SELECT claim FROM sickbay.lease WHERE ids && p_ids ORDER BY claim FOR UPDATE);
    FOR s IN WITH x AS (
                 SELECT w.id, w.queue, w.stream FROM sickbay.waiting w WHERE w.id = ANY (p_ids) AND w.stream IS NOT NULL
                 UNION ALL SELECT d.id, d.queue, d.stream FROM sickbay.dead d
                 WHERE d.id = ANY (p_ids) AND d.stream IS NOT NULL
                 UNION ALL SELECT r.id, r.queue, r.stream FROM sickbay.lease l, unnest(l.rows) r
                 WHERE l.ids && p_ids AND r.id = ANY (p_ids) AND r.stream IS NOT NULL
             )
             SELECT x.queue, x.stream FROM x
             UNION SELECT q.no, x.stream FROM x JOIN unnest(p_ids, p_targets) u(id, target) ON u.id = x.id
             JOIN sickbay.queue q ON q.name = u.target
             ORDER BY 1, 2 LOOP
        v_stream := sickbay.lock_stream(s.queue, s.stream);
        IF v_stream.turns = 0 THEN
            v_made := v_made || v_stream;
        END IF;
    END LOOP;
    PERFORM 1 FROM sickbay.waiting WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
    PERFORM 1 FROM sickbay.dead WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
    IF EXISTS (SELECT 1 FROM sickbay.lease WHERE ids && p_ids AND claim <> ALL (v_claims)) THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM sickbay.key k WHERE (k.queue, k.key) IN (
        SELECT w.queue, w.key FROM sickbay.waiting w WHERE w.id = ANY (p_ids)
        UNION ALL SELECT d.queue, (d.message).key FROM sickbay.dead d WHERE d.id = ANY (p_ids)
        UNION ALL SELECT r.queue, r.key FROM sickbay.lease l, unnest(l.rows) r WHERE l.ids && p_ids AND r.id = ANY (p_ids))
    ORDER BY k.queue, k.key FOR UPDATE;
    -- What was there a moment ago may be gone.
    PERFORM sickbay.refresh_stream(m.queue, m.key) FROM unnest(v_made) m WHERE NOT EXISTS (
        SELECT 1 FROM sickbay.dead d WHERE d.id = ANY (p_ids) AND d.queue = m.queue AND d.stream = m.key);
    RETURN true;
END $$;

-- What comes before every act: nobody who is in the middle of something is in its way then, and what is due is done, for
-- which nobody is waited for.
CREATE OR REPLACE FUNCTION sickbay.begin_act(p_now bigint, p_ids bigint[], p_targets text[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    FOR turn IN 1..10 LOOP
        BEGIN
            EXIT WHEN sickbay.locks_messages(p_ids, p_targets);
            RAISE EXCEPTION 'one of them moved' USING ERRCODE = 'SB099';
        EXCEPTION WHEN SQLSTATE 'SB099' THEN
            -- The locks are free again.
        END;
    END LOOP;
    PERFORM sickbay.expire(p_now, false);
END $$;

-- The word for where a message is.
CREATE OR REPLACE FUNCTION sickbay.status(p_place text, r sickbay.waiting, p_now bigint) RETURNS text LANGUAGE sql
IMMUTABLE AS $$
    SELECT CASE WHEN p_place = 'leased' THEN 'active'
                WHEN p_place <> 'waiting' THEN p_place
                WHEN r.due_at <= p_now THEN 'pending'
                WHEN r.facts[2] > 0 THEN 'failed'
                ELSE 'scheduled' END
$$;

-- A key goes with a message that leaves its queue without having been done.
CREATE OR REPLACE FUNCTION sickbay.disown(r sickbay.waiting) RETURNS void LANGUAGE sql AS $$
    DELETE FROM sickbay.key WHERE queue = r.queue AND key = r.key AND owner = r.id AND state <> 1
$$;

CREATE OR REPLACE FUNCTION sickbay.replay(
    p_now bigint, p_ids bigint[], p_queues text[], p_payloads bytea[], p_checksums bigint[]
) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    v_target integer;
    m record;
    r sickbay.waiting;
BEGIN
    PERFORM sickbay.queue_no(name) FROM unnest(p_queues) name WHERE name IS NOT NULL;
    PERFORM sickbay.begin_act(v_now, p_ids, p_queues);
    FOR i IN 1..coalesce(cardinality(p_ids), 0) LOOP
        SELECT * INTO m FROM sickbay.locate(p_ids[i]);
        IF m.place <> 'dead' THEN
            IF (m.r).stream IS NOT NULL THEN
                PERFORM sickbay.refresh_stream((m.r).queue, (m.r).stream);
            END IF;
            RETURN NEXT sickbay.status(m.place, m.r, v_now);
            CONTINUE;
        END IF;
        r := m.r;
        v_target := coalesce(sickbay.queue_no(p_queues[i]), r.queue);
        DELETE FROM sickbay.dead WHERE id = r.id;
        DELETE FROM sickbay.hold WHERE queue = r.queue AND key = r.stream AND id = r.id;
        INSERT INTO sickbay.attempt (message, number, started_at, ended_at, worker, ended)
        VALUES (r.id, coalesce(r.facts[8], 0) + coalesce(r.facts[1], 0), v_now, v_now, '', 5);
        r.facts := ARRAY[0, 0, 0, 0, 0, 0, coalesce(r.facts[7], 0) + 1,
                         coalesce(r.facts[8], 0) + coalesce(r.facts[1], 0), coalesce(r.facts[9], 0), 5];
        r.deferred := false;
        r.suspect := false;
        r.traces := true;
        r.due_at := v_now;
        IF p_payloads[i] IS NOT NULL AND p_payloads[i] <> r.payload THEN
            INSERT INTO sickbay.original VALUES (r.id, r.payload) ON CONFLICT DO NOTHING;
            r.payload := p_payloads[i];
            r.checksum := p_checksums[i];
        END IF;
        INSERT INTO sickbay.tally (queue, dead, replayed) VALUES (r.queue, -1, 1);
        IF v_target <> r.queue THEN
            PERFORM sickbay.disown(r);
            INSERT INTO sickbay.tally (queue, pushed) VALUES (r.queue, -1);
            INSERT INTO sickbay.tally (queue, pushed) VALUES (v_target, 1);
            IF r.stream IS NOT NULL THEN
                PERFORM sickbay.refresh_stream(r.queue, r.stream);
                PERFORM sickbay.lock_stream(v_target, r.stream);
            END IF;
            r.queue := v_target;
        ELSIF r.key IS NOT NULL THEN
            UPDATE sickbay.key SET state = 0 WHERE queue = r.queue AND key = r.key AND owner = r.id AND state = 2;
        END IF;
        INSERT INTO sickbay.tally (queue, live) VALUES (r.queue, 1);
        r.lane := CASE WHEN r.stream IS NOT NULL THEN 1 ELSE sickbay.lane_of(r.queue, r.type, false) END;
        INSERT INTO sickbay.waiting SELECT (r).*;
        IF r.stream IS NOT NULL THEN
            PERFORM sickbay.refresh_stream(r.queue, r.stream);
        END IF;
        PERFORM sickbay.announce(r.queue);
        RETURN NEXT 'done';
    END LOOP;
END $$;

-- Sets live messages aside by hand; what a worker holds is taken from it.
CREATE OR REPLACE FUNCTION sickbay.dead_letter(
    p_now bigint, p_ids bigint[], p_error text, p_error_lower text, p_details bytea[], p_signatures bigint[]
) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    m record;
    l record;
    r sickbay.waiting;
    q sickbay.queue;
BEGIN
    PERFORM sickbay.begin_act(v_now, p_ids);
    FOR i IN 1..coalesce(cardinality(p_ids), 0) LOOP
        SELECT * INTO m FROM sickbay.locate(p_ids[i]);
        r := m.r;
        IF m.place IN ('waiting', 'leased') THEN
            SELECT * INTO q FROM sickbay.queue WHERE no = r.queue;
            l := ROW ('', v_now);
            IF m.place = 'waiting' THEN
                DELETE FROM sickbay.waiting WHERE id = r.id;
                PERFORM sickbay.set_aside(v_now, q, r, '', v_now, p_details[i], 'Operator', 'poison', 'Operator',
                                          p_error, p_error_lower, p_signatures[i]);
            ELSE
                SELECT x.epoch, x.claim, x.worker, x.claimed_at INTO l FROM sickbay.lease x WHERE x.claim = m.claim;
                r.facts := coalesce(r.facts, '{0,0,0,0,0,0,0,0,0,0}');
                r.facts[1] := r.facts[1] + 1;
                r.last_epoch := l.epoch;
                r.last_claim := l.claim;
                PERFORM sickbay.shrink_lease(m.claim, ARRAY[r.id]);
                UPDATE sickbay.stream SET leased = leased - 1 WHERE queue = r.queue AND key = r.stream;
                PERFORM sickbay.set_aside(v_now, q, r, l.worker, l.claimed_at, p_details[i], 'Operator', 'poison',
                                          'Operator', p_error, p_error_lower, p_signatures[i]);
            END IF;
            INSERT INTO sickbay.tally (queue, live, quarantined, dead) VALUES (r.queue, -1, 1, 1);
        END IF;
        IF r.stream IS NOT NULL THEN
            PERFORM sickbay.refresh_stream(r.queue, r.stream);
            PERFORM sickbay.announce(r.queue);
        END IF;
        RETURN NEXT CASE WHEN m.place IN ('waiting', 'leased') THEN 'done' ELSE m.place END;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION sickbay.discard(p_now bigint, p_ids bigint[], p_why text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    m record;
BEGIN
    PERFORM sickbay.begin_act(v_now, p_ids);
    FOR i IN 1..coalesce(cardinality(p_ids), 0) LOOP
        SELECT * INTO m FROM sickbay.locate(p_ids[i]);
        IF m.place = 'dead' THEN
            UPDATE sickbay.dead SET discarded_at = v_now, discarded_why = p_why WHERE id = p_ids[i];
            DELETE FROM sickbay.hold WHERE queue = (m.r).queue AND key = (m.r).stream AND id = p_ids[i];
            INSERT INTO sickbay.tally (queue, dead, discarded) VALUES ((m.r).queue, -1, 1);
        END IF;
        IF (m.r).stream IS NOT NULL THEN
            PERFORM sickbay.refresh_stream((m.r).queue, (m.r).stream);
            PERFORM sickbay.announce((m.r).queue);
        END IF;
        RETURN NEXT CASE m.place WHEN 'dead' THEN 'done' ELSE sickbay.status(m.place, m.r, v_now) END;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION sickbay.restore(p_now bigint, p_ids bigint[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    m record;
BEGIN
    PERFORM sickbay.begin_act(v_now, p_ids);
    FOR i IN 1..coalesce(cardinality(p_ids), 0) LOOP
        SELECT * INTO m FROM sickbay.locate(p_ids[i]);
        IF m.place = 'discarded' THEN
            UPDATE sickbay.dead SET discarded_at = NULL, discarded_why = NULL WHERE id = p_ids[i];
            INSERT INTO sickbay.tally (queue, dead, discarded) VALUES ((m.r).queue, 1, -1);
        END IF;
        IF (m.r).stream IS NOT NULL THEN
            PERFORM sickbay.refresh_stream((m.r).queue, (m.r).stream);
        END IF;
        RETURN NEXT CASE m.place WHEN 'discarded' THEN 'done' ELSE sickbay.status(m.place, m.r, v_now) END;
    END LOOP;
END $$;

-- What was discarded at least so long ago goes for good, the longest discarded first.
CREATE OR REPLACE FUNCTION sickbay.purge(p_now bigint, p_queue text, p_age bigint, p_max bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_until bigint := sickbay.time_now(p_now) - p_age;
    v_queue integer := sickbay.queue_no(p_queue);
    v_count bigint := 0;
    v_ids bigint[];
    d record;
BEGIN
    -- What somebody brings back at this moment stays.
    v_ids := ARRAY(SELECT id FROM sickbay.dead WHERE queue = v_queue AND discarded_at <= v_until
                   ORDER BY discarded_at, id LIMIT p_max FOR UPDATE SKIP LOCKED);
    PERFORM 1 FROM sickbay.key k WHERE k.queue = v_queue AND k.key IN (
        SELECT (x.message).key FROM sickbay.dead x WHERE x.id = ANY (v_ids)) ORDER BY k.key FOR UPDATE;
    FOR d IN SELECT id, message FROM sickbay.dead WHERE id = ANY (v_ids) LOOP
        DELETE FROM sickbay.dead WHERE id = d.id;
        PERFORM sickbay.forget(d.id);
        PERFORM sickbay.disown(d.message);
        v_count := v_count + 1;
    END LOOP;
    INSERT INTO sickbay.tally (queue, discarded, removed) VALUES (v_queue, -v_count, v_count);
    RETURN v_count;
END $$;

CREATE OR REPLACE FUNCTION sickbay.cancel(p_now bigint, p_ids bigint[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    m record;
BEGIN
    PERFORM sickbay.begin_act(v_now, p_ids);
    FOR i IN 1..coalesce(cardinality(p_ids), 0) LOOP
        SELECT * INTO m FROM sickbay.locate(p_ids[i]);
        IF m.place = 'waiting' THEN
            DELETE FROM sickbay.waiting WHERE id = p_ids[i];
            PERFORM sickbay.forget(p_ids[i]);
            PERFORM sickbay.disown(m.r);
            INSERT INTO sickbay.tally (queue, live, removed) VALUES ((m.r).queue, -1, 1);
        END IF;
        IF (m.r).stream IS NOT NULL THEN
            PERFORM sickbay.refresh_stream((m.r).queue, (m.r).stream);
            PERFORM sickbay.announce((m.r).queue);
        END IF;
        RETURN NEXT CASE m.place WHEN 'waiting' THEN 'done' ELSE sickbay.status(m.place, m.r, v_now) END;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION sickbay.hasten(p_now bigint, p_ids bigint[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    v_status text;
    m record;
BEGIN
    PERFORM sickbay.begin_act(v_now, p_ids);
    FOR i IN 1..coalesce(cardinality(p_ids), 0) LOOP
        SELECT * INTO m FROM sickbay.locate(p_ids[i]);
        v_status := sickbay.status(m.place, m.r, v_now);
        IF v_status IN ('scheduled', 'failed') THEN
            UPDATE sickbay.waiting SET due_at = v_now WHERE id = p_ids[i];
            PERFORM sickbay.announce((m.r).queue);
            v_status := 'done';
        END IF;
        IF (m.r).stream IS NOT NULL THEN
            PERFORM sickbay.refresh_stream((m.r).queue, (m.r).stream);
        END IF;
        RETURN NEXT v_status;
    END LOOP;
END $$;

-- Gives messages that wait their attempts back.
CREATE OR REPLACE FUNCTION sickbay.reset_attempts(p_now bigint, p_ids bigint[]) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    v_status text;
    m record;
    f integer[];
BEGIN
    PERFORM sickbay.begin_act(v_now, p_ids);
    FOR i IN 1..coalesce(cardinality(p_ids), 0) LOOP
        SELECT * INTO m FROM sickbay.locate(p_ids[i]);
        v_status := sickbay.status(m.place, m.r, v_now);
        f := (m.r).facts;
        IF m.place = 'waiting' AND (f IS NULL OR f[1:6] = '{0,0,0,0,0,0}') THEN
            v_status := 'untouched ' || v_status;
        ELSIF m.place = 'waiting' THEN
            INSERT INTO sickbay.attempt (message, number, started_at, ended_at, worker, ended)
            VALUES (p_ids[i], f[8] + f[1], v_now, v_now, '', 6);
            UPDATE sickbay.waiting SET traces = true, facts = ARRAY[0, 0, 0, 0, 0, 0, f[7], f[8] + f[1], f[9], f[10]]
            WHERE id = p_ids[i];
            v_status := 'done';
        END IF;
        IF (m.r).stream IS NOT NULL THEN
            PERFORM sickbay.refresh_stream((m.r).queue, (m.r).stream);
        END IF;
        RETURN NEXT v_status;
    END LOOP;
END $$;

-- Opens or closes a type (0 open, 1 paused, 2 tripped, 3 probing). What lies in front of a closed gate is moved out
-- of the way by the claims that meet it.
CREATE OR REPLACE FUNCTION sickbay.set_type_gate(p_queue text, p_type text, p_gate smallint, p_left bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_queue integer := sickbay.queue_no(p_queue);
BEGIN
    IF p_gate = 0 THEN
        DELETE FROM sickbay.type_gate WHERE queue = v_queue AND type = p_type;
        UPDATE sickbay.waiting SET lane = CASE WHEN suspect THEN 3 ELSE 0 END
        WHERE queue = v_queue AND type = p_type AND lane = 2;
    ELSE
        INSERT INTO sickbay.type_gate VALUES (v_queue, p_type, p_gate, p_left)
        ON CONFLICT (queue, type) DO UPDATE SET gate = p_gate, probes_left = p_left;
        UPDATE sickbay.waiting SET lane = 2 WHERE queue = v_queue AND suspect AND type = p_type AND lane = 3;
    END IF;
    PERFORM sickbay.announce(v_queue);
END $$;
