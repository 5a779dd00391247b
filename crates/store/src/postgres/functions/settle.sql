-- How deliveries end (contract 13-17).
-- Acts: 0 complete, 1 retry, 2 release, 3 redeliver, 4 quarantine, 5 crashed, 6 never handed out, 7 corrupt,
-- 8 crashed and quarantined. Charged is what was alone in the hands of the process that died.

-- Carries a decision about a message out that was taken from its holder. Stream, lease and tally are the caller's.
CREATE OR REPLACE FUNCTION sickbay.apply(
    p_now bigint, q sickbay.queue, r sickbay.waiting, p_epoch bigint, p_claim bigint, p_worker text, p_started bigint,
    p_act smallint, p_after bigint, p_stages integer, p_cascade boolean, p_details bytea, p_set_aside text,
    p_kind text, p_reason text, p_error text, p_error_lower text, p_signature bigint, p_charged boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    f integer[] := coalesce(r.facts, '{0,0,0,0,0,0,0,0,0,0}');
    v_ended smallint;
BEGIN
    IF p_act = 6 THEN
        r.lane := CASE WHEN r.stream IS NOT NULL THEN 1 ELSE sickbay.lane_of(r.queue, r.type, r.suspect) END;
        INSERT INTO sickbay.waiting SELECT (r).*;
        RETURN;
    END IF;
    IF p_act <> 7 THEN
        f[1] := f[1] + 1;
        r.last_epoch := coalesce(p_epoch, r.last_epoch);
        r.last_claim := coalesce(p_claim, r.last_claim);
    END IF;
    f[9] := f[9] | p_stages;
    IF p_act IN (1, 4, 7) THEN
        f[2] := f[2] + 1;
        f[9] := f[9] | 32768;
    END IF;
    IF p_act = 0 THEN
        r.facts := f;
        PERFORM sickbay.complete(p_now, q, r);
        RETURN;
    END IF;
    CASE p_act
        WHEN 1 THEN
            v_ended := 0;
            f[10] := 1;
            r.suspect := false;
            r.due_at := sickbay.time_after(p_now, p_after);
            r.deferred := r.deferred OR q.defers OR p_cascade;
        WHEN 2 THEN
            v_ended := 4;
            f[5] := f[5] + 1;
            f[10] := 4;
            IF p_after > 0 THEN
                r.due_at := sickbay.time_after(p_now, p_after);
            END IF;
        WHEN 3 THEN
            v_ended := 3;
            f[6] := f[6] + 1;
            f[10] := 3;
        WHEN 5 THEN
            v_ended := 2;
            f[3] := f[3] + 1;
            f[4] := f[4] + p_charged::integer;
            f[10] := 2;
            r.suspect := true;
        ELSE
            v_ended := 1;
            IF p_act = 8 THEN
                f[3] := f[3] + 1;
                f[4] := f[4] + p_charged::integer;
            END IF;
    END CASE;
    r.facts := f;
    IF p_act IN (4, 7, 8) THEN
        PERFORM sickbay.set_aside(p_now, q, r, p_worker, p_started, p_details, p_set_aside, p_kind, p_reason, p_error,
                                  p_error_lower, p_signature);
        RETURN;
    END IF;
    INSERT INTO sickbay.attempt (message, number, started_at, ended_at, worker, ended, details)
    VALUES (r.id, f[8] + f[1], p_started, p_now, p_worker, v_ended, p_details);
    r.traces := true;
    IF p_act IN (1, 5) THEN
        r.first_failed_at := coalesce(r.first_failed_at, p_now);
    END IF;
    r.lane := CASE WHEN r.stream IS NOT NULL THEN 1 ELSE sickbay.lane_of(r.queue, r.type, r.suspect) END;
    INSERT INTO sickbay.waiting SELECT (r).*;
END $$;

-- A message is done: its key with it, and what it left elsewhere goes unless its queue keeps it.
CREATE OR REPLACE FUNCTION sickbay.complete(p_now bigint, q sickbay.queue, r sickbay.waiting) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF r.key IS NOT NULL AND q.key_window > 0 THEN
        UPDATE sickbay.key SET state = 1, done_until = sickbay.time_after(p_now, q.key_window)
        WHERE queue = q.no AND key = r.key AND owner = r.id;
    ELSIF r.key IS NOT NULL THEN
        DELETE FROM sickbay.key WHERE queue = q.no AND key = r.key AND owner = r.id;
    END IF;
    IF q.keep_completed > 0 THEN
        INSERT INTO sickbay.completed VALUES (r.id, sickbay.time_after(p_now, q.keep_completed), r);
    ELSIF r.traces THEN
        PERFORM sickbay.forget(r.id);
    END IF;
END $$;

-- Removes what is kept of a message elsewhere.
-- Who runs the store may add to what was recorded, and change or delete nothing of it; this alone deletes, and nothing
-- of what is in quarantine.
CREATE OR REPLACE FUNCTION sickbay.forget(p_id bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM sickbay.dead WHERE id = p_id AND discarded_at IS NULL) THEN
        RAISE EXCEPTION 'message % is in quarantine', p_id USING ERRCODE = '42501';
    END IF;
    DELETE FROM sickbay.attempt WHERE message = p_id;
    DELETE FROM sickbay.original WHERE message = p_id;
END $$;

-- Sets a message aside. Counting is the caller's.
CREATE OR REPLACE FUNCTION sickbay.set_aside(
    p_now bigint, q sickbay.queue, r sickbay.waiting, p_worker text, p_started bigint, p_details bytea,
    p_set_aside text, p_kind text, p_reason text, p_error text, p_error_lower text, p_signature bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sickbay.attempt (message, number, started_at, ended_at, worker, ended, details)
    VALUES (r.id, coalesce(r.facts[8], 0) + coalesce(r.facts[1], 0), p_started, p_now, p_worker, 1, p_details);
    r.traces := true;
    r.suspect := false;
    r.first_failed_at := coalesce(r.first_failed_at, p_now);
    INSERT INTO sickbay.dead (id, no, queue, type, stream, set_aside, kind, reason, signature, error, error_lower,
                              quarantined_at, payload_bytes, message)
    VALUES (r.id, nextval('sickbay.dead_number'), r.queue, r.type, r.stream, p_set_aside, p_kind, p_reason,
            p_signature, p_error, p_error_lower, p_now, octet_length(r.payload), r);
    IF r.key IS NOT NULL THEN
        UPDATE sickbay.key SET state = 2 WHERE queue = r.queue AND key = r.key AND owner = r.id AND state = 0;
    END IF;
    IF r.stream IS NOT NULL AND NOT r.deferred AND q.holds THEN
        INSERT INTO sickbay.hold VALUES (r.queue, r.stream, r.id, p_now);
    END IF;
END $$;

-- Completes deliveries that leave nothing behind but their leases, which the caller has locked: all at once, by one
-- join that costs as much as there are numbers. None is there twice.
CREATE OR REPLACE FUNCTION sickbay.complete_plain(p_now bigint, p_epochs bigint[], p_claims bigint[], p_ids bigint[])
RETURNS smallint[] LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_epoch bigint := (SELECT value FROM sickbay.meta WHERE name = 'epoch');
    v_answers smallint[];
BEGIN
    WITH member AS MATERIALIZED (
        SELECT l.claim, l.epoch, l.queue, m.id, m.until AS own, coalesce(m.until, l.until) AS until, m.ord
        FROM sickbay.lease l, unnest(l.ids, l.untils) WITH ORDINALITY m(id, until, ord)
        WHERE l.claim IN (SELECT DISTINCT unnest(p_claims))
    ), wish AS MATERIALIZED (
        SELECT w.id, w.claim, w.epoch, w.ord FROM unnest(p_ids, p_claims, p_epochs) WITH ORDINALITY w(id, claim, epoch, ord)
    ), met AS MATERIALIZED (
        SELECT m.claim, m.queue, m.id, m.own, m.ord, w.ord AS wish FROM member m LEFT JOIN wish w
            ON w.id = m.id AND w.claim = m.claim AND w.epoch = m.epoch AND m.until > p_now AND w.epoch >= v_epoch
    ), fate AS MATERIALIZED (
        SELECT claim, queue, count(wish) AS done, array_agg(id ORDER BY ord) FILTER (WHERE wish IS NULL) AS ids,
               array_agg(own ORDER BY ord) FILTER (WHERE wish IS NULL) AS untils,
               min(own) FILTER (WHERE wish IS NULL) AS until
        FROM met GROUP BY claim, queue HAVING count(wish) > 0
    ), emptied AS (
        DELETE FROM sickbay.lease l USING fate f WHERE l.claim = f.claim AND f.ids IS NULL
    ), shrunk AS (
        UPDATE sickbay.lease l SET ids = f.ids, until = coalesce(f.until, l.until),
            untils = CASE WHEN f.until IS NOT NULL THEN f.untils END
        FROM fate f WHERE l.claim = f.claim AND f.ids IS NOT NULL
    ), counted AS (
        INSERT INTO sickbay.tally (queue, live, completed) SELECT queue, -sum(done), sum(done) FROM fate GROUP BY queue
    )
    SELECT array_agg((m.wish IS NULL)::integer::smallint ORDER BY w.ord) INTO v_answers
    FROM wish w LEFT JOIN met m ON m.wish = w.ord;
    RETURN v_answers;
END $$;

-- Completes deliveries that leave nothing behind but their leases and keys; none if any of them leaves more. The numbers
-- are in order and each there once.
CREATE OR REPLACE FUNCTION sickbay.settle_plain(p_now bigint, p_epochs bigint[], p_claims bigint[], p_ids bigint[])
RETURNS smallint[] LANGUAGE plpgsql SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_answers smallint[];
    v_left record;
BEGIN
    IF cardinality(p_claims) = 1 THEN
        -- A whole batch is done: the common case.
        WITH gone AS (
            DELETE FROM sickbay.lease y USING sickbay.queue z
            WHERE y.claim = p_claims[1] AND y.epoch = p_epochs[1] AND y.until > p_now AND y.special IS NULL
                AND y.epoch >= (SELECT value FROM sickbay.meta WHERE name = 'epoch')
                AND y.ids = p_ids AND z.no = y.queue AND z.keep_completed = 0
            RETURNING y.queue
        ) INSERT INTO sickbay.tally (queue, live, completed)
        SELECT gone.queue, -cardinality(p_ids), cardinality(p_ids) FROM gone;
        IF FOUND THEN
            RETURN array_fill(0::smallint, ARRAY[cardinality(p_ids)]);
        END IF;
    END IF;
    IF cardinality(p_claims) < cardinality(p_ids) THEN
        p_claims := array_fill(p_claims[1], ARRAY[cardinality(p_ids)]);
        p_epochs := array_fill(p_epochs[1], ARRAY[cardinality(p_ids)]);
    END IF;
    PERFORM 1 FROM sickbay.lease WHERE claim = ANY (p_claims) ORDER BY claim FOR UPDATE;
    IF EXISTS (
        SELECT 1 FROM sickbay.lease y JOIN sickbay.queue z ON z.no = y.queue
        WHERE y.claim IN (SELECT DISTINCT unnest(p_claims)) AND z.keep_completed > 0) THEN
        RETURN NULL;
    END IF;
    SELECT * INTO v_left FROM sickbay.left_behind(p_claims, p_ids);
    IF v_left.more THEN
        RETURN NULL;
    END IF;
    v_answers := sickbay.complete_plain(p_now, p_epochs, p_claims, p_ids);
    IF v_left.keys IS NOT NULL AND 1 = ANY (v_answers) THEN
        -- Some came too late.
        SELECT array_agg(u.queue ORDER BY u.ord) AS queues, array_agg(u.key ORDER BY u.ord) AS keys,
               array_agg(u.owner ORDER BY u.ord) AS owners
        INTO v_left
        FROM unnest(v_left.queues, v_left.keys, v_left.owners) WITH ORDINALITY u(queue, key, owner, ord)
        JOIN unnest(p_ids, v_answers) a(id, answer) ON a.id = u.owner AND a.answer = 0;
    END IF;
    IF v_left.keys IS NOT NULL THEN
        PERFORM sickbay.end_keys(p_now, v_left.queues, v_left.keys, v_left.owners);
    END IF;
    RETURN v_answers;
END $$;

-- What the leases of these claims hold of these messages that leaves more behind than its lease: its keys, and whether
-- there is anything else. Both lists are long, so they are never compared one by one.
CREATE OR REPLACE FUNCTION sickbay.left_behind(
    p_claims bigint[], p_ids bigint[], OUT more boolean, OUT queues integer[], OUT keys text[], OUT owners bigint[]
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    SELECT bool_or(x.stream IS NOT NULL OR x.traces), array_agg(x.queue ORDER BY x.queue, x.key),
           array_agg(x.key ORDER BY x.queue, x.key), array_agg(x.id ORDER BY x.queue, x.key)
    INTO more, queues, keys, owners
    FROM sickbay.lease y, unnest(y.rows) x
    WHERE y.claim = ANY (p_claims) AND y.special IS NOT NULL AND x.id IN (SELECT unnest(p_ids))
        AND (x.key IS NOT NULL OR x.stream IS NOT NULL OR x.traces);
END $$;

-- The keys of messages that are done, in order: they are known for a while, or free at once.
CREATE OR REPLACE FUNCTION sickbay.end_keys(p_now bigint, p_queues integer[], p_keys text[], p_owners bigint[])
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q record;
BEGIN
    FOR q IN SELECT z.no, z.key_window FROM sickbay.queue z WHERE z.no IN (SELECT DISTINCT unnest(p_queues)) ORDER BY z.no LOOP
        IF q.key_window > 0 THEN
            UPDATE sickbay.key k SET state = 1, done_until = sickbay.time_after(p_now, q.key_window)
            FROM unnest(p_queues, p_keys, p_owners) u(queue, key, owner)
            WHERE u.queue = q.no AND k.queue = q.no AND k.key = u.key AND k.owner = u.owner;
        ELSE
            DELETE FROM sickbay.key k USING unnest(p_queues, p_keys, p_owners) u(queue, key, owner)
            WHERE u.queue = q.no AND k.queue = q.no AND k.key = u.key AND k.owner = u.owner;
        END IF;
    END LOOP;
END $$;

-- Settles deliveries: one array a column, or one claim and epoch for all. All of them are complete where `p_acts` is none.
-- Answers 0 where it took effect and 1 where the lease was lost. `p_force` is for the store itself: the time of a lease does not matter then.
CREATE OR REPLACE FUNCTION sickbay.settle(
    p_now bigint, p_force boolean, p_epochs bigint[], p_claims bigint[], p_ids bigint[], p_acts smallint[],
    p_after bigint[], p_stages integer[], p_cascade boolean[], p_details bytea[], p_set_aside text[], p_kind text[],
    p_reason text[], p_error text[], p_error_lower text[], p_signature bigint[], p_charged boolean[]
) RETURNS smallint[] LANGUAGE plpgsql SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_answers smallint[] := array_fill(1::smallint, ARRAY[cardinality(p_ids)]);
    v_plain boolean := p_acts IS NULL;
    v_epoch bigint := sickbay.epoch();
    l record;
    s record;
    u record;
    q sickbay.queue;
    r sickbay.waiting;
    v_gone bigint[];
    v_streams text[];
    v_failures bigint;
    v_quarantined bigint;
    v_completed bigint;
BEGIN
    IF cardinality(p_claims) < cardinality(p_ids) THEN
        p_claims := array_fill(p_claims[1], ARRAY[cardinality(p_ids)]);
        p_epochs := array_fill(p_epochs[1], ARRAY[cardinality(p_ids)]);
    END IF;
    -- Leases first, then streams, then keys, each in one order everywhere.
    PERFORM 1 FROM sickbay.lease WHERE claim = ANY (p_claims) ORDER BY claim FOR UPDATE;
    FOR s IN SELECT DISTINCT x.queue, x.stream FROM sickbay.lease y, unnest(y.rows) x
             WHERE y.claim IN (SELECT DISTINCT unnest(p_claims)) AND y.special IS NOT NULL AND x.stream IS NOT NULL
                 AND x.id IN (SELECT unnest(p_ids))
             ORDER BY 1, 2 LOOP
        PERFORM sickbay.lock_stream(s.queue, s.stream);
    END LOOP;
    PERFORM 1 FROM sickbay.key k WHERE (k.queue, k.key) IN (
        SELECT x.queue, x.key FROM sickbay.lease y, unnest(y.rows) x
        WHERE y.claim IN (SELECT DISTINCT unnest(p_claims)) AND y.special IS NOT NULL AND x.key IS NOT NULL
            AND x.id IN (SELECT unnest(p_ids)))
    ORDER BY k.queue, k.key FOR UPDATE;
    FOR l IN SELECT claim, epoch, queue, worker, claimed_at, until, suspect, ids, untils, special
             FROM sickbay.lease WHERE claim = ANY (p_claims) ORDER BY claim LOOP
        SELECT * INTO q FROM sickbay.queue WHERE no = l.queue;
        v_gone := '{}';
        v_streams := '{}';
        v_failures := 0;
        v_quarantined := 0;
        v_completed := 0;
        -- The messages are unpacked once, and the first of two settlements of one of them counts.
        FOR u IN WITH kept AS MATERIALIZED (
                     SELECT w.id, w AS message FROM sickbay.lease y, unnest(y.rows) w
                     WHERE y.claim = l.claim AND (NOT v_plain OR l.special IS NOT NULL OR q.keep_completed > 0)
                 )
                 SELECT x.i, x.id, x.act, k.message, z.id IS NOT NULL OR q.keep_completed > 0 AS special
                 FROM (SELECT DISTINCT ON (o.id) o.ord::integer AS i, o.id, coalesce(o.act, 0) AS act
                       FROM unnest(p_ids, p_claims, p_epochs, p_acts) WITH ORDINALITY o(id, claim, epoch, act, ord)
                       WHERE o.claim = l.claim AND o.epoch = l.epoch ORDER BY o.id, o.ord) x
                 JOIN unnest(l.ids, l.untils) y(id, until) ON y.id = x.id
                 LEFT JOIN unnest(l.special) z(id) ON z.id = x.id
                 LEFT JOIN kept k ON k.id = x.id
                 WHERE p_force OR coalesce(y.until, l.until) > p_now AND l.epoch >= v_epoch ORDER BY x.i LOOP
            v_gone := v_gone || u.id;
            v_answers[u.i] := 0;
            IF u.act = 0 THEN
                v_completed := v_completed + 1;
                CONTINUE WHEN u.special IS NOT TRUE;
            END IF;
            r := u.message;
            PERFORM sickbay.apply(
                p_now, q, r, l.epoch, l.claim, CASE WHEN u.act = 7 THEN '' ELSE l.worker END,
                CASE WHEN u.act = 7 THEN p_now ELSE l.claimed_at END, u.act::smallint,
                coalesce(p_after[u.i], 0), coalesce(p_stages[u.i], 0), coalesce(p_cascade[u.i], false),
                p_details[u.i], p_set_aside[u.i], p_kind[u.i], p_reason[u.i], p_error[u.i], p_error_lower[u.i],
                p_signature[u.i], coalesce(p_charged[u.i], false));
            IF u.act IN (1, 4, 7, 8) THEN
                v_failures := v_failures + 1;
            END IF;
            IF u.act IN (4, 7, 8) THEN
                v_quarantined := v_quarantined + 1;
            END IF;
            IF r.stream IS NOT NULL THEN
                UPDATE sickbay.stream SET leased = leased - 1 WHERE queue = l.queue AND key = r.stream;
                v_streams := v_streams || r.stream;
            END IF;
        END LOOP;
        CONTINUE WHEN v_gone = '{}';
        PERFORM sickbay.shrink_lease(l.claim, v_gone);
        PERFORM sickbay.refresh_stream(l.queue, x.stream) FROM (SELECT DISTINCT unnest(v_streams) AS stream) x;
        IF v_completed + v_failures > 0 THEN
            INSERT INTO sickbay.tally (queue, live, completed, failures, quarantined, dead)
            VALUES (l.queue, -v_completed - v_quarantined, v_completed, v_failures, v_quarantined, v_quarantined);
        END IF;
        IF v_streams <> '{}' OR NOT v_plain THEN
            PERFORM sickbay.announce(l.queue);
        END IF;
    END LOOP;
    RETURN v_answers;
END $$;

-- Takes members out of a lease; removes it when none is left.
CREATE OR REPLACE FUNCTION sickbay.shrink_lease(p_claim bigint, p_gone bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_ids bigint[];
    v_untils bigint[];
BEGIN
    SELECT array_agg(u.id ORDER BY u.ord), array_agg(u.until ORDER BY u.ord) INTO v_ids, v_untils
    FROM sickbay.lease l, unnest(l.ids, l.untils) WITH ORDINALITY u(id, until, ord)
    WHERE l.claim = p_claim AND NOT EXISTS (SELECT 1 FROM unnest(p_gone) g(id) WHERE g.id = u.id);
    IF v_ids IS NULL THEN
        DELETE FROM sickbay.lease WHERE claim = p_claim;
    ELSIF v_untils[1] IS NULL THEN
        UPDATE sickbay.lease SET ids = v_ids WHERE claim = p_claim;
    ELSE
        UPDATE sickbay.lease SET ids = v_ids, untils = v_untils, until = (SELECT min(t) FROM unnest(v_untils) t)
        WHERE claim = p_claim;
    END IF;
END $$;

-- Prolongs leases; answers those that are lost.
CREATE OR REPLACE FUNCTION sickbay.renew(
    p_now bigint, p_epochs bigint[], p_claims bigint[], p_ids bigint[], p_lease bigint
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    v_until bigint := sickbay.time_after(sickbay.time_now(p_now), p_lease);
    v_epoch bigint := sickbay.epoch();
    l record;
    v_untils bigint[];
    v_kept bigint[] := '{}';
BEGIN
    PERFORM 1 FROM sickbay.lease WHERE claim = ANY (p_claims) ORDER BY claim FOR UPDATE;
    FOR l IN SELECT claim, epoch, until, ids, untils FROM sickbay.lease WHERE claim = ANY (p_claims) LOOP
        CONTINUE WHEN l.epoch < v_epoch;
        -- A token may be there twice.
        SELECT array_agg(CASE WHEN w.ords IS NOT NULL THEN greatest(coalesce(m.until, l.until), v_until)
                              ELSE coalesce(m.until, l.until) END ORDER BY m.ord)
        INTO v_untils
        FROM unnest(l.ids, l.untils) WITH ORDINALITY m(id, until, ord)
        LEFT JOIN (SELECT o.id, count(*) AS ords FROM unnest(p_ids, p_claims, p_epochs) o(id, claim, epoch)
                   WHERE o.claim = l.claim AND o.epoch = l.epoch GROUP BY o.id) w
            ON w.id = m.id AND coalesce(m.until, l.until) > v_now;
        v_kept := v_kept || ARRAY(
            SELECT o.ord FROM unnest(p_ids, p_claims, p_epochs) WITH ORDINALITY o(id, claim, epoch, ord)
            JOIN unnest(l.ids, l.untils) m(id, until) ON m.id = o.id
            WHERE o.claim = l.claim AND o.epoch = l.epoch AND coalesce(m.until, l.until) > v_now);
        UPDATE sickbay.lease SET until = (SELECT min(t) FROM unnest(v_untils) t),
            untils = CASE WHEN (SELECT count(DISTINCT t) FROM unnest(v_untils) t) > 1 THEN v_untils END
        WHERE claim = l.claim;
    END LOOP;
    RETURN QUERY SELECT x FROM generate_series(1, cardinality(p_ids)::bigint) x WHERE x <> ALL (v_kept) ORDER BY x;
END $$;

-- Leases whose time has come end (contract 16). Those that somebody settles at this moment are left to them.
CREATE OR REPLACE FUNCTION sickbay.expire(p_now bigint, p_all boolean) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_taken bigint[];
    v_epochs bigint[];
    v_claims bigint[];
    v_ids bigint[];
    v_answers smallint[];
BEGIN
    IF NOT EXISTS (SELECT 1 FROM sickbay.lease WHERE p_all OR until <= p_now) THEN
        RETURN 0;
    END IF;
    v_taken := ARRAY(SELECT claim FROM sickbay.lease WHERE p_all OR until <= p_now
                     ORDER BY until LIMIT CASE WHEN p_all THEN NULL ELSE 200 END FOR UPDATE SKIP LOCKED);
    v_taken := ARRAY(SELECT claim FROM sickbay.lease
                     WHERE claim = ANY (v_taken) AND (special IS NULL OR sickbay.locks_all_of(claim)));
    SELECT array_agg(l.epoch), array_agg(l.claim), array_agg(m.id) INTO v_epochs, v_claims, v_ids
    FROM sickbay.lease l, unnest(l.ids, l.untils) m(id, until)
    WHERE l.claim = ANY (v_taken) AND (p_all OR coalesce(m.until, l.until) <= p_now);
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    v_answers := sickbay.settle(p_now, true, v_epochs, v_claims, v_ids,
                                array_fill(3::smallint, ARRAY[cardinality(v_ids)]),
                                NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    RETURN (SELECT count(*) FROM unnest(v_answers) a WHERE a = 0);
END $$;

-- Locks the streams and keys of what a lease holds. False if others have one of them: nobody waits here, because it may
-- be a caller's own transaction that pushes and stays open for long.
CREATE OR REPLACE FUNCTION sickbay.locks_all_of(p_claim bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    x record;
BEGIN
    FOR x IN SELECT DISTINCT r.queue, r.stream FROM sickbay.lease l, unnest(l.rows) r
             WHERE l.claim = p_claim AND r.stream IS NOT NULL AND r.id = ANY (l.ids) LOOP
        PERFORM 1 FROM sickbay.stream WHERE queue = x.queue AND key = x.stream FOR UPDATE SKIP LOCKED;
        IF NOT FOUND AND EXISTS (SELECT 1 FROM sickbay.stream WHERE queue = x.queue AND key = x.stream) THEN
            RETURN false;
        END IF;
    END LOOP;
    FOR x IN SELECT DISTINCT r.queue, r.key FROM sickbay.lease l, unnest(l.rows) r
             WHERE l.claim = p_claim AND r.key IS NOT NULL AND r.id = ANY (l.ids) LOOP
        PERFORM 1 FROM sickbay.key WHERE queue = x.queue AND key = x.key FOR UPDATE SKIP LOCKED;
        IF NOT FOUND AND EXISTS (SELECT 1 FROM sickbay.key WHERE queue = x.queue AND key = x.key) THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;
