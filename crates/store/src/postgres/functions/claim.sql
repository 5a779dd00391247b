-- What a claim gets (contract 6, 8-12, 18, 21, 31).

-- Says that a process works on a queue. Somebody else who says so at this moment is enough.
CREATE OR REPLACE FUNCTION sickbay.be_present(p_now bigint, p_process bigint, p_queue integer, p_worker text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE sickbay.presence SET last = p_now, worker = p_worker WHERE ctid = (
        SELECT ctid FROM sickbay.presence WHERE process = p_process AND queue = p_queue FOR UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
        INSERT INTO sickbay.presence VALUES (p_process, p_queue, p_worker, p_now) ON CONFLICT DO NOTHING;
    END IF;
END $$;

-- Whether suspects keep a process from getting anything else: 0 no, 1 it gets a suspect, 2 it gets nothing.
CREATE OR REPLACE FUNCTION sickbay.suspicion(p_now bigint, p_process bigint) RETURNS integer LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET jit = off AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM sickbay.lease WHERE process = p_process AND suspect) THEN
        RETURN 2;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM sickbay.waiting WHERE suspect) THEN
        RETURN 0;
    END IF;
    IF NOT EXISTS (
        SELECT 1 FROM sickbay.presence p JOIN sickbay.queue q ON q.no = p.queue AND NOT q.paused
        JOIN sickbay.waiting w ON w.queue = p.queue AND w.suspect AND w.due_at <= p_now
        WHERE p.process = p_process AND p.last >= p_now - 60000 AND sickbay.is_open(w.queue, w.lane, w.type)) THEN
        RETURN 0;
    END IF;
    RETURN CASE WHEN EXISTS (SELECT 1 FROM sickbay.lease WHERE process = p_process) THEN 2 ELSE 1 END;
END $$;

-- True if a suspect of this lane and type can be claimed.
CREATE OR REPLACE FUNCTION sickbay.is_open(p_queue integer, p_lane smallint, p_type text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT p_lane = 3 OR p_lane = 2 AND EXISTS (
        SELECT 1 FROM sickbay.type_gate WHERE queue = p_queue AND type = p_type AND gate = 3 AND probes_left > 0)
$$;

-- A probe of a type whose gate lets some through (contract 31). False if none is left or somebody else takes one now.
CREATE OR REPLACE FUNCTION sickbay.take_probe(p_queue integer, p_type text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM sickbay.type_gate WHERE queue = p_queue AND type = p_type AND gate = 3 AND probes_left > 0
    FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE sickbay.type_gate SET probes_left = probes_left - 1 WHERE queue = p_queue AND type = p_type;
        RETURN true;
    END IF;
    RETURN false;
END $$;

-- Takes a key that nobody has. False if somebody has it, or is about to: their transaction may stay open for long, and
-- no claim waits for it.
CREATE OR REPLACE FUNCTION sickbay.took_key(p_queue integer, p_key text, p_owner bigint) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '5ms' AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM sickbay.key WHERE queue = p_queue AND key = p_key) THEN
        RETURN false;
    END IF;
    INSERT INTO sickbay.key VALUES (p_queue, p_key, p_owner, 0) ON CONFLICT DO NOTHING;
    RETURN FOUND;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

-- A replayed message may meet a key that it no longer owns (contract 6): 0 it may be handed out, 1 not now, 2 it
-- was completed or put off.
CREATE OR REPLACE FUNCTION sickbay.meet_key(p_now bigint, q sickbay.queue, r sickbay.waiting) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    k sickbay.key;
BEGIN
    SELECT * INTO k FROM sickbay.key WHERE queue = r.queue AND key = r.key FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN CASE WHEN sickbay.took_key(r.queue, r.key, r.id) THEN 0 ELSE 1 END;
    END IF;
    IF k.state = 0 AND k.owner = r.id THEN
        RETURN 0;
    ELSIF k.state = 0 THEN
        UPDATE sickbay.waiting SET due_at = sickbay.time_after(p_now, 1000) WHERE id = r.id;
        RETURN 2;
    ELSIF k.state = 1 AND k.done_until > p_now THEN
        DELETE FROM sickbay.waiting WHERE id = r.id;
        PERFORM sickbay.complete(p_now, q, r);
        INSERT INTO sickbay.tally (queue, live, completed, duplicates) VALUES (q.no, -1, 1, 1);
        IF r.stream IS NOT NULL THEN
            PERFORM sickbay.refresh_stream(r.queue, r.stream);
        END IF;
        RETURN 2;
    END IF;
    UPDATE sickbay.key SET owner = r.id, state = 0, done_until = NULL WHERE queue = r.queue AND key = r.key;
    RETURN 0;
END $$;

-- What could be handed out next, best first, locked; what others have locked is passed over.
CREATE OR REPLACE FUNCTION sickbay.candidates(
    p_now bigint, p_queue integer, p_suspects boolean, p_probing text[], p_seen bigint[], p_max integer
) RETURNS SETOF sickbay.waiting LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
BEGIN
    IF p_suspects THEN
        RETURN QUERY SELECT w.* FROM sickbay.waiting w
            WHERE w.queue = p_queue AND w.suspect AND w.due_at <= p_now AND w.id <> ALL (p_seen)
                AND sickbay.is_open(w.queue, w.lane, w.type)
            ORDER BY w.rank, w.due_at, w.id LIMIT 1 FOR UPDATE SKIP LOCKED;
    ELSIF p_probing IS NULL THEN
        RETURN QUERY SELECT w.* FROM generate_series(0, 9) r, LATERAL (
            SELECT x.* FROM sickbay.waiting x
            WHERE x.queue = p_queue AND x.lane = 0 AND x.rank = r AND x.due_at <= p_now AND x.id <> ALL (p_seen)
            ORDER BY x.due_at, x.id LIMIT p_max FOR UPDATE SKIP LOCKED) w LIMIT p_max;
    ELSE
        RETURN QUERY SELECT c.* FROM (
            SELECT w.* FROM generate_series(0, 9) r, LATERAL (
                SELECT x.* FROM sickbay.waiting x
                WHERE x.queue = p_queue AND x.lane = 0 AND x.rank = r AND x.due_at <= p_now AND x.id <> ALL (p_seen)
                ORDER BY x.due_at, x.id LIMIT p_max FOR UPDATE SKIP LOCKED) w
            UNION ALL
            SELECT w.* FROM unnest(p_probing) t, generate_series(0, 9) r, LATERAL (
                SELECT x.* FROM sickbay.waiting x
                WHERE x.queue = p_queue AND x.lane = 2 AND x.type = t AND x.rank = r AND x.due_at <= p_now
                    AND NOT x.suspect AND x.id <> ALL (p_seen)
                ORDER BY x.due_at, x.id LIMIT p_max FOR UPDATE SKIP LOCKED) w
        ) c ORDER BY c.rank, c.due_at, c.id LIMIT p_max;
    END IF;
END $$;

-- Chooses one by one what a claim gets, where streams, gates, keys or suspects have a say.
CREATE OR REPLACE FUNCTION sickbay.choose(
    p_now bigint, q sickbay.queue, p_process bigint, p_suspicion integer, p_max integer
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_chosen bigint[] := '{}';
    v_seen bigint[] := '{}';
    v_streams text[] := '{}';
    v_probing text[];
    v_moved integer := 0;
    v_before integer;
    v_changed boolean;
    v_met integer;
    v_gate integer;
    v_hold bigint;
    w sickbay.waiting;
    x record;
BEGIN
    LOOP
        v_changed := false;
        v_before := cardinality(v_seen);
        SELECT array_agg(type) INTO v_probing FROM sickbay.type_gate
        WHERE queue = q.no AND gate = 3 AND probes_left > 0;
        FOR w IN SELECT * FROM sickbay.candidates(p_now, q.no, p_suspicion = 1, v_probing, v_seen,
                                                  p_max - cardinality(v_chosen)) LOOP
            EXIT WHEN cardinality(v_chosen) >= p_max;
            v_seen := v_seen || w.id;
            CONTINUE WHEN w.stream = ANY (v_streams);
            v_gate := CASE WHEN w.type IS NULL THEN 0 ELSE sickbay.gate_at(q.no, w.type) END;
            CONTINUE WHEN v_gate = 2;
            -- It came while its gate was set.
            IF w.lane IN (0, 3) AND v_gate = 1
               AND NOT EXISTS (SELECT 1 FROM sickbay.type_gate WHERE queue = q.no AND type = w.type AND gate = 3
                               AND probes_left > 0) THEN
                UPDATE sickbay.waiting SET lane = 2 WHERE id = w.id;
                v_moved := v_moved + 1;
                CONTINUE;
            END IF;
            IF w.stream IS NOT NULL THEN
                PERFORM 1 FROM sickbay.stream WHERE queue = q.no AND key = w.stream FOR UPDATE SKIP LOCKED;
                CONTINUE WHEN NOT FOUND;
            END IF;
            IF w.key IS NOT NULL AND w.facts[7] > 0 THEN
                v_met := sickbay.meet_key(p_now, q, w);
                v_changed := v_met = 2;
                EXIT WHEN v_changed;
                CONTINUE WHEN v_met = 1;
            END IF;
            CONTINUE WHEN v_gate = 1 AND NOT sickbay.take_probe(q.no, w.type);
            v_chosen := v_chosen || w.id;
            CONTINUE WHEN w.stream IS NULL;
            v_streams := v_streams || w.stream;
            CONTINUE WHEN w.deferred OR w.suspect;
            SELECT min(h.id) INTO v_hold FROM sickbay.hold h WHERE h.queue = q.no AND h.key = w.stream;
            FOR x IN SELECT y.id, y.due_at, y.suspect, y.type, y.key IS NOT NULL AND y.facts[7] > 0 AS replayed
                     FROM sickbay.waiting y
                     WHERE y.queue = q.no AND y.stream = w.stream AND NOT y.deferred AND y.id > w.id
                     ORDER BY y.id LIMIT least(q.run_max - 1, p_max - cardinality(v_chosen)) LOOP
                EXIT WHEN x.due_at > p_now OR x.suspect OR x.replayed OR x.id > v_hold;
                v_gate := CASE WHEN x.type IS NULL THEN 0 ELSE sickbay.gate_at(q.no, x.type) END;
                EXIT WHEN v_gate = 2 OR v_gate = 1 AND NOT sickbay.take_probe(q.no, x.type);
                v_chosen := v_chosen || x.id;
            END LOOP;
        END LOOP;
        IF v_changed THEN
            v_seen := array_remove(v_seen, w.id);
            -- A suspect that this made claimable is handed out alone.
            EXIT WHEN p_suspicion = 0 AND sickbay.suspicion(p_now, p_process) > 0;
        END IF;
        EXIT WHEN cardinality(v_chosen) >= p_max OR v_moved > 5000 OR p_suspicion = 1 AND v_chosen <> '{}';
        EXIT WHEN NOT v_changed AND cardinality(v_seen) = v_before;
    END LOOP;
    RETURN v_chosen;
END $$;

-- When time alone makes something claimable next, after a claim that found nothing; none if nothing waits for its time.
CREATE OR REPLACE FUNCTION sickbay.next_event(p_now bigint, p_queue integer) RETURNS bigint LANGUAGE sql VOLATILE
SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
    SELECT least(
        (SELECT min(w.due_at) FROM generate_series(0, 3) l, generate_series(0, 9) r, LATERAL (
            SELECT x.due_at FROM sickbay.waiting x WHERE x.queue = p_queue AND x.lane = l AND x.lane <> 1 AND x.rank = r
                AND x.due_at > CASE WHEN l = 0 THEN p_now ELSE -9223372036854775808 END
            ORDER BY x.due_at, x.id LIMIT 1) w),
        (SELECT l.until FROM sickbay.lease l WHERE l.until > p_now ORDER BY l.until LIMIT 1))
$$;

-- Where a claim begins to look. A claim takes from the front, so what others have taken lies before everything that is
-- left, and the database keeps stepping over it until it was vacuumed; the longest transaction of all decides when that
-- is. So a caller says what its last claim reached, one time and number a rank (`p_floor_dues`, `p_floor_ids`), when that
-- was (`p_floor_since`) and how long it may be relied on (`p_floor_until`). What came in before it meanwhile is found then,
-- or as soon as nothing else is left.

-- One exchange: settlements in, deliveries out. The first row carries what holds for all of them: the answers to the
-- settlements; `low`, if something may lie before what a claim reached; `walked`, the microseconds it took to look from
-- the very front, 0 if it did not begin there, and none if floors do not hold for such a claim; and the lease, or when
-- it makes sense to come back.
CREATE OR REPLACE FUNCTION sickbay.exchange(
    p_now bigint, p_epochs bigint[], p_claims bigint[], p_ids bigint[], p_acts smallint[], p_after bigint[],
    p_stages integer[], p_cascade boolean[], p_details bytea[], p_set_aside text[], p_kind text[], p_reason text[],
    p_error text[], p_error_lower text[], p_signature bigint[],
    p_queue text, p_worker text, p_process bigint, p_max integer, p_lease bigint,
    p_floor_dues bigint[], p_floor_ids bigint[], p_floor_since bigint, p_floor_until bigint
) RETURNS TABLE (
    answers smallint[], low boolean, walked bigint, epoch bigint, claim bigint, expires_at bigint, now bigint,
    place integer, id bigint, rank smallint, due_at bigint, pushed_at bigint, deadline_at bigint, checksum bigint,
    suspect boolean, type text, stream text, key text, facts integer[], headers bytea, payload bytea
) LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    v_floored boolean;
    v_began timestamptz;
    v_suspicion integer := 0;
    v_before integer;
    -- Claims of one process share it; who takes a suspect has it alone.
    v_alone integer := (p_process & 2147483647)::integer;
    v_facts record;
    v_special boolean := true;
    v_tids tid[];
    v_chosen bigint[];
    v_stream record;
    q sickbay.queue;
BEGIN
    IF p_queue IS NOT NULL THEN
        SELECT * INTO q FROM sickbay.queue WHERE name = p_queue;
        IF NOT FOUND THEN
            PERFORM sickbay.queue_no(p_queue);
        END IF;
    END IF;
    now := v_now;
    low := false;
    IF p_ids IS NOT NULL THEN
        IF p_acts IS NULL THEN
            answers := sickbay.settle_plain(v_now, p_epochs, p_claims, p_ids);
        END IF;
        IF answers IS NULL THEN
            answers := sickbay.settle(v_now, false, p_epochs, p_claims, p_ids, p_acts, p_after, p_stages, p_cascade,
                                      p_details, p_set_aside, p_kind, p_reason, p_error, p_error_lower, p_signature, NULL);
            low := true;
        END IF;
    END IF;
    <<look>>
    BEGIN
        EXIT look WHEN p_queue IS NULL;
        v_floored := p_floor_dues IS NOT NULL AND NOT low AND v_now >= p_floor_since AND v_now < p_floor_until;
        SELECT (SELECT p.last FROM sickbay.presence p WHERE p.process = p_process AND p.queue = q.no) AS last,
               EXISTS (SELECT 1 FROM sickbay.lease l WHERE l.until <= v_now
                       AND l.until > CASE WHEN v_floored THEN p_floor_since - 100 ELSE -1 END) AS expired,
               (SELECT m.value FROM sickbay.meta m WHERE m.name = 'epoch') AS epoch,
               EXISTS (SELECT 1 FROM sickbay.type_gate g WHERE g.queue = q.no) AS gated
        INTO v_facts;
        IF v_facts.last IS NULL OR v_facts.last < v_now - 999 THEN
            PERFORM sickbay.be_present(v_now, p_process, q.no, p_worker);
        END IF;
        IF v_facts.expired THEN
            PERFORM sickbay.expire(v_now, false);
            low := true;
            v_floored := false;
        END IF;
        EXIT look WHEN q.paused OR p_max <= 0;
        IF NOT pg_try_advisory_xact_lock_shared('sickbay.lease'::regclass::oid::integer, v_alone) THEN
            -- Another claim of this process takes a suspect.
            EXIT look;
        END IF;
        IF EXISTS (SELECT 1 FROM sickbay.lease l WHERE l.process = p_process AND l.suspect)
           OR EXISTS (SELECT 1 FROM sickbay.waiting w WHERE w.suspect) THEN
            v_suspicion := sickbay.suspicion(v_now, p_process);
            EXIT look WHEN v_suspicion = 2;
            IF v_suspicion = 1 AND NOT pg_try_advisory_xact_lock('sickbay.lease'::regclass::oid::integer, v_alone) THEN
                -- Other claims of this process are under way. Not all of them come back at the same moment.
                expires_at := v_now + 1 + floor(random() * 20)::bigint;
                EXIT look;
            END IF;
        END IF;
        IF v_suspicion = 0 AND NOT v_facts.gated THEN
            LOOP
                v_began := clock_timestamp();
                SELECT array_agg(c.tid), bool_or(c.special) INTO v_tids, v_special FROM (
                    SELECT w.tid, w.special FROM generate_series(0, 9) r, LATERAL (
                        SELECT x.ctid AS tid, x.stream IS NOT NULL OR x.key IS NOT NULL AND x.facts[7] > 0 AS special
                        FROM sickbay.waiting x
                        WHERE x.queue = q.no AND x.lane = 0 AND x.rank = r AND x.due_at <= v_now
                            AND (x.due_at, x.id) > (CASE WHEN v_floored THEN p_floor_dues[r + 1] ELSE -9223372036854775808 END,
                                                    CASE WHEN v_floored THEN p_floor_ids[r + 1] ELSE 0 END)
                        ORDER BY x.due_at, x.id LIMIT p_max FOR UPDATE SKIP LOCKED) w
                    LIMIT p_max) c;
                EXIT WHEN v_tids IS NOT NULL OR NOT v_floored;
                v_floored := false;
            END LOOP;
            walked := CASE WHEN v_special THEN NULL WHEN v_floored THEN 0
                           ELSE 1 + 1000000 * extract(epoch FROM clock_timestamp() - v_began) END;
            IF v_tids IS NULL THEN
                -- After a long way all that was there at its beginning may be gone, and other things have come.
                expires_at := CASE WHEN walked > 5000 THEN v_now ELSE sickbay.next_event(v_now, q.no) END;
                EXIT look;
            END IF;
        END IF;
        IF v_special THEN
            v_tids := NULL;
            FOR turn IN 1..3 LOOP
                v_chosen := sickbay.choose(v_now, q, p_process, v_suspicion, p_max);
                EXIT WHEN v_chosen <> '{}' OR turn = 3;
                -- What it completed on its way may have made room for a suspect, and suspects may lie behind a gate.
                v_before := v_suspicion;
                v_suspicion := sickbay.suspicion(v_now, p_process);
                EXIT look WHEN v_suspicion IN (v_before, 2) OR v_suspicion = 1
                    AND NOT pg_try_advisory_xact_lock('sickbay.lease'::regclass::oid::integer, v_alone);
            END LOOP;
            EXIT look WHEN v_chosen = '{}';
            SELECT array_agg(w.ctid) INTO v_tids FROM sickbay.waiting w WHERE w.id = ANY (v_chosen);
        END IF;
        epoch := v_facts.epoch;
        claim := nextval('sickbay.claim_number');
        expires_at := sickbay.time_after(v_now, p_lease);
    END look;
    RETURN NEXT;
    IF v_tids IS NULL THEN
        RETURN;
    END IF;
    -- They are locked: three looks at them are cheaper than one that keeps what it saw.
    RETURN QUERY
    SELECT NULL::smallint[], NULL::boolean, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
           array_position(v_chosen, w.id), w.id, w.rank, w.due_at, w.pushed_at, w.deadline_at, w.checksum,
           w.suspect, w.type, w.stream, w.key, w.facts, w.headers, w.payload
    FROM sickbay.waiting w WHERE w.ctid = ANY (v_tids);
    INSERT INTO sickbay.lease AS i (claim, epoch, queue, process, worker, claimed_at, until, suspect, ids, special, rows)
    SELECT exchange.claim, exchange.epoch, q.no, p_process, p_worker, v_now, exchange.expires_at, v_suspicion = 1,
           array_agg(w.id ORDER BY w.id),
           array_agg(w.id) FILTER (WHERE w.stream IS NOT NULL OR w.key IS NOT NULL OR w.traces),
           array_agg(w)
    FROM sickbay.waiting w WHERE w.ctid = ANY (v_tids);
    DELETE FROM sickbay.waiting w WHERE w.ctid = ANY (v_tids);
    IF v_chosen IS NOT NULL THEN
        FOR v_stream IN SELECT x.stream, count(*) AS leased FROM sickbay.lease l, unnest(l.rows) x
                 WHERE l.claim = exchange.claim AND x.stream IS NOT NULL GROUP BY 1 ORDER BY 1 LOOP
            UPDATE sickbay.stream s SET leased = s.leased + v_stream.leased WHERE s.queue = q.no AND s.key = v_stream.stream;
            PERFORM sickbay.refresh_stream(q.no, v_stream.stream);
        END LOOP;
    END IF;
END $$;
