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

-- Stores messages: one array a column, all of one length. Answers one row a message, in order.
CREATE OR REPLACE FUNCTION sickbay.push_all(
    p_now bigint, p_queues text[], p_payloads bytea[], p_types text[], p_streams text[], p_keys text[],
    p_ranks smallint[], p_delays bigint[], p_deadlines bigint[], p_headers bytea[], p_checksums bigint[],
    p_stages integer[]
) RETURNS TABLE (id bigint, duplicate boolean) LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    v_count integer := coalesce(cardinality(p_payloads), 0);
    v_queues integer[];
    v_ids bigint[] := '{}';
    v_lanes smallint[];
    v_owner bigint;
    v_gated boolean;
    v_fresh boolean[];
    s record;
    st sickbay.stream;
    q record;
BEGIN
    IF v_count = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(sickbay.queue_no(u.name) ORDER BY u.ord) INTO v_queues
    FROM unnest(p_queues) WITH ORDINALITY u(name, ord);
    -- Streams and keys are locked in one order everywhere, and only then are numbers given: so the numbers of a
    -- stream or key grow in the order in which they can be seen.
    FOR s IN SELECT DISTINCT u.queue, u.stream FROM unnest(v_queues, p_streams) u(queue, stream)
             WHERE u.stream IS NOT NULL ORDER BY 1, 2 LOOP
        st := sickbay.lock_stream(s.queue, s.stream);
    END LOOP;
    IF EXISTS (SELECT 1 FROM unnest(p_keys) k WHERE k IS NOT NULL) THEN
        PERFORM sickbay.key_owner(u.queue, u.key, v_now)
        FROM (SELECT DISTINCT v.queue, v.key FROM unnest(v_queues, p_keys) v(queue, key)
              WHERE v.key IS NOT NULL ORDER BY 1, 2) u;
        FOR i IN 1..v_count LOOP
            v_owner := CASE WHEN p_keys[i] IS NOT NULL THEN sickbay.key_owner(v_queues[i], p_keys[i], v_now) END;
            v_fresh[i] := v_owner IS NULL;
            v_ids[i] := coalesce(v_owner, nextval('sickbay.message_number'));
            IF p_keys[i] IS NOT NULL AND v_owner IS NULL THEN
                UPDATE sickbay.key k SET owner = v_ids[i], state = 0, done_until = NULL
                WHERE k.queue = v_queues[i] AND k.key = p_keys[i];
            END IF;
        END LOOP;
    ELSE
        v_ids := ARRAY(SELECT nextval('sickbay.message_number') FROM generate_series(1, v_count));
    END IF;
    v_gated := EXISTS (SELECT 1 FROM sickbay.type_gate g WHERE g.queue = ANY (v_queues));
    INSERT INTO sickbay.waiting (queue, lane, rank, due_at, id, pushed_at, deadline_at, checksum, type, stream, key,
                                 facts, headers, payload)
    SELECT u.queue,
           CASE WHEN u.stream IS NOT NULL THEN 1 WHEN v_gated THEN sickbay.lane_of(u.queue, u.type, false) ELSE 0 END,
           coalesce(u.rank, 5), sickbay.time_after(v_now, coalesce(u.delay, 0)), u.id, v_now,
           sickbay.time_after(v_now, u.deadline), u.checksum, u.type, u.stream, u.key,
           CASE WHEN u.stages <> 0 THEN ARRAY[0, 0, 0, 0, 0, 0, 0, 0, u.stages, 0] END, u.headers, u.payload
    FROM unnest(v_queues, v_ids, p_payloads, p_types, p_streams, p_keys, p_ranks, p_delays, p_deadlines, p_headers,
                p_checksums, p_stages, v_fresh)
         u(queue, id, payload, type, stream, key, rank, delay, deadline, headers, checksum, stages, fresh)
    WHERE u.fresh IS NOT FALSE;
    FOR s IN SELECT DISTINCT u.queue, u.stream FROM unnest(v_queues, p_streams) u(queue, stream)
             WHERE u.stream IS NOT NULL ORDER BY 1, 2 LOOP
        PERFORM sickbay.refresh_stream(s.queue, s.stream);
    END LOOP;
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
        NULL, ARRAY[queue], ARRAY[payload], ARRAY[type], ARRAY[stream], ARRAY[key], ARRAY[(9 - priority)::smallint],
        ARRAY[greatest(0, extract(epoch FROM delay) * 1000)::bigint],
        ARRAY[greatest(0, extract(epoch FROM deadline) * 1000)::bigint], ARRAY[NULL::bytea], ARRAY[NULL::bigint],
        ARRAY[0]) p);
END $$;

CREATE OR REPLACE FUNCTION sickbay.check_name(p_what text, p_name text, p_bytes_max integer, p_bad text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_name = '' OR octet_length(p_name) > p_bytes_max OR p_name ~ p_bad THEN
        RAISE EXCEPTION 'the % % is not possible: 1 to % bytes without % are', p_what, quote_literal(left(p_name, 60)),
            p_bytes_max, p_bad USING ERRCODE = 'SB018';
    END IF;
END $$;
