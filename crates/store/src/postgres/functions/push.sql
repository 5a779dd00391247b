-- How messages come in (contract 1-7).

-- True if a key's owner makes a message with it a duplicate; the key is locked. Otherwise the key is the message's.
CREATE OR REPLACE FUNCTION sickbay.key_owner(p_queue integer, p_key text, p_now bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    k sickbay.key;
BEGIN
    LOOP
        SELECT * INTO k FROM sickbay.key WHERE queue = p_queue AND key = p_key FOR UPDATE;
        IF FOUND THEN
            RETURN CASE WHEN k.state = 0 OR (k.state = 1 AND k.done_until > p_now) THEN k.owner END;
        END IF;
        INSERT INTO sickbay.key VALUES (p_queue, p_key, 0, 2) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END LOOP;
END $$;

-- Stores messages: one array a column, all of one length; one queue alone means all of them, and no array at all
-- that none has anything there. Answers one row a message, in order.
CREATE OR REPLACE FUNCTION sickbay.push_all(
    p_now bigint, p_queues text[], p_payloads bytea[], p_types text[], p_streams text[], p_keys text[],
    p_ranks smallint[], p_delays bigint[], p_deadlines bigint[], p_headers bytea[], p_checksums bigint[],
    p_stages integer[]
) RETURNS TABLE (id bigint, duplicate boolean) LANGUAGE plpgsql SET jit = off SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    v_count integer := coalesce(cardinality(p_payloads), 0);
    v_queue integer;
    v_queues integer[];
    v_ids bigint[] := '{}';
    v_gated boolean;
    v_fresh boolean[];
    s record;
    q record;
BEGIN
    IF v_count = 0 THEN
        RETURN;
    END IF;
    v_gated := EXISTS (SELECT 1 FROM sickbay.type_gate);
    IF cardinality(p_queues) = 1 AND NOT v_gated AND p_streams IS NULL AND p_keys IS NULL AND p_delays IS NULL
       AND p_deadlines IS NULL AND p_stages IS NULL THEN
        -- Nothing but messages: the common case.
        v_queue := sickbay.queue_no(p_queues[1]);
        RETURN QUERY
            INSERT INTO sickbay.waiting AS w (queue, lane, rank, due_at, id, pushed_at, checksum, type, headers, payload)
            SELECT v_queue, 0, u.rank, v_now, nextval('sickbay.message_number'), v_now, u.checksum, u.type, u.headers,
                   u.payload
            FROM unnest(p_payloads, p_types, p_ranks, p_headers, p_checksums) u(payload, type, rank, headers, checksum)
            RETURNING w.id, false;
        INSERT INTO sickbay.tally (queue, live, pushed) VALUES (v_queue, v_count, v_count);
        PERFORM sickbay.announce(v_queue);
        RETURN;
    END IF;
    IF cardinality(p_queues) = 1 THEN
        v_queues := array_fill(sickbay.queue_no(p_queues[1]), ARRAY[v_count]);
    ELSE
        SELECT array_agg(sickbay.queue_no(u.name) ORDER BY u.ord) INTO v_queues
        FROM unnest(p_queues) WITH ORDINALITY u(name, ord);
    END IF;
    -- Streams and keys are locked in one order everywhere, and only then are numbers given: so the numbers of a
    -- stream or key grow in the order in which they can be seen.
    IF p_streams IS NOT NULL THEN
        FOR s IN SELECT DISTINCT u.queue, u.stream COLLATE "C" AS stream FROM unnest(v_queues, p_streams) u(queue, stream)
                 WHERE u.stream IS NOT NULL ORDER BY 1, 2 LOOP
            PERFORM sickbay.lock_stream(s.queue, s.stream);
        END LOOP;
    END IF;
    IF p_keys IS NOT NULL THEN
        WITH locked AS (
            INSERT INTO sickbay.key AS k (queue, key, owner, state)
            SELECT DISTINCT v.queue, v.key COLLATE "C", 0, 2 FROM unnest(v_queues, p_keys) v(queue, key)
            WHERE v.key IS NOT NULL ORDER BY 1, 2
            ON CONFLICT ON CONSTRAINT key_pkey DO UPDATE SET owner = k.owner
            RETURNING k.queue, k.key, CASE WHEN k.state = 0 OR k.state = 1 AND k.done_until > v_now THEN k.owner END AS owner
        ), message AS MATERIALIZED (
            SELECT u.ord, u.queue, u.key, l.owner,
                   u.key IS NULL OR l.owner IS NULL AND u.ord = min(u.ord) OVER (PARTITION BY u.queue, u.key) AS fresh
            FROM unnest(v_queues, p_keys) WITH ORDINALITY u(queue, key, ord)
            LEFT JOIN locked l ON l.queue = u.queue AND l.key = u.key
        ), numbered AS MATERIALIZED (
            SELECT o.ord, o.queue, o.key, nextval('sickbay.message_number') AS id
            FROM (SELECT m.ord, m.queue, m.key FROM message m WHERE m.fresh ORDER BY m.ord) o
        )
        SELECT array_agg(coalesce(n.id, m.owner, f.id) ORDER BY m.ord), array_agg(m.fresh ORDER BY m.ord)
        INTO v_ids, v_fresh
        FROM message m LEFT JOIN numbered n ON n.ord = m.ord
        LEFT JOIN numbered f ON NOT m.fresh AND m.owner IS NULL AND f.queue = m.queue AND f.key = m.key;
        UPDATE sickbay.key k SET owner = u.id, state = 0, done_until = NULL
        FROM unnest(v_queues, p_keys, v_ids, v_fresh) u(queue, key, id, fresh)
        WHERE u.fresh AND k.queue = u.queue AND k.key = u.key;
    ELSE
        v_ids := ARRAY(SELECT nextval('sickbay.message_number') FROM generate_series(1, v_count));
    END IF;
    INSERT INTO sickbay.waiting (queue, lane, rank, due_at, id, pushed_at, deadline_at, checksum, type, stream, key,
                                 facts, headers, payload)
    SELECT u.queue,
           CASE WHEN u.stream IS NOT NULL THEN 1 WHEN v_gated THEN sickbay.lane_of(u.queue, u.type, false) ELSE 0 END,
           u.rank, sickbay.time_after(v_now, coalesce(u.delay, 0)), u.id, v_now,
           sickbay.time_after(v_now, u.deadline), u.checksum, u.type, u.stream, u.key,
           CASE WHEN u.stages <> 0 THEN ARRAY[0, 0, 0, 0, 0, 0, 0, 0, u.stages, 0] END, u.headers, u.payload
    FROM unnest(v_queues, v_ids, p_payloads, p_types, p_streams, p_keys, p_ranks, p_delays, p_deadlines, p_headers,
                p_checksums, p_stages, v_fresh)
         u(queue, id, payload, type, stream, key, rank, delay, deadline, headers, checksum, stages, fresh)
    WHERE u.fresh IS NOT FALSE;
    IF p_streams IS NOT NULL THEN
        FOR s IN SELECT DISTINCT u.queue, u.stream FROM unnest(v_queues, p_streams) u(queue, stream)
                 WHERE u.stream IS NOT NULL ORDER BY 1, 2 LOOP
            PERFORM sickbay.refresh_stream(s.queue, s.stream);
        END LOOP;
    END IF;
    FOR q IN SELECT u.queue, count(*) FILTER (WHERE u.fresh IS NOT FALSE) AS pushed,
                    count(*) FILTER (WHERE u.fresh IS FALSE) AS duplicates
             FROM unnest(v_queues, v_fresh) u(queue, fresh) GROUP BY 1 LOOP
        INSERT INTO sickbay.tally (queue, live, pushed, duplicates) VALUES (q.queue, q.pushed, q.pushed, q.duplicates);
        PERFORM sickbay.announce(q.queue);
    END LOOP;
    RETURN QUERY SELECT u.id, u.fresh IS FALSE FROM unnest(v_ids, v_fresh) WITH ORDINALITY u(id, fresh, ord)
                 ORDER BY u.ord;
END $$;

-- Pushes one message, in the transaction of whoever calls it: the outbox for every client. Answers its number, or
-- that of the message that carries its key already.
CREATE OR REPLACE FUNCTION sickbay.push(
    queue text, payload bytea, type text DEFAULT NULL, stream text DEFAULT NULL, key text DEFAULT NULL,
    priority integer DEFAULT 4, delay interval DEFAULT '0', deadline interval DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'priority % is not between 0 and 9', priority USING ERRCODE = 'SB018';
    END IF;
    PERFORM sickbay.check_name('message type', type, 200, '[^-a-zA-Z0-9_.:/]');
    PERFORM sickbay.check_name('stream key', stream, 500, '[[:cntrl:]]');
    PERFORM sickbay.check_name('idempotency key', key, 500, '[[:cntrl:]]');
    RETURN (SELECT p.id FROM sickbay.push_all(
        NULL, ARRAY[queue], ARRAY[payload], ARRAY[type], CASE WHEN stream IS NOT NULL THEN ARRAY[stream] END,
        CASE WHEN key IS NOT NULL THEN ARRAY[key] END, ARRAY[(9 - priority)::smallint],
        ARRAY[greatest(0, extract(epoch FROM delay) * 1000)::bigint],
        ARRAY[greatest(0, extract(epoch FROM deadline) * 1000)::bigint], NULL, NULL, NULL) p);
END $$;

CREATE OR REPLACE FUNCTION sickbay.check_name(p_what text, p_name text, p_bytes_max integer, p_bad text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_name = '' OR octet_length(p_name) > p_bytes_max OR p_name ~ p_bad THEN
        RAISE EXCEPTION 'the % % is not possible: 1 to % bytes without % are', p_what, quote_literal(left(p_name, 60)),
            p_bytes_max, p_bad USING ERRCODE = 'SB018';
    END IF;
END $$;
