-- How long origins are remembered, as `ORIGIN_WINDOW` in the code says.
CREATE OR REPLACE FUNCTION sickbay.origin_window() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 604800000::bigint';

-- Takes failed messages of a broker in (contract 7), and does with each what a settlement would have done.
CREATE OR REPLACE FUNCTION sickbay.adopt(
    p_now bigint, p_queues text[], p_origins bytea[], p_payloads bytea[], p_types text[], p_streams text[],
    p_keys text[], p_ranks smallint[], p_deadlines bigint[], p_headers bytea[], p_checksums bigint[],
    p_message_stages integer[], p_facts integer[], p_started bigint[], p_workers text[], p_acts smallint[],
    p_after bigint[], p_stages integer[], p_details bytea[], p_set_aside text[], p_kind text[], p_reason text[],
    p_error text[], p_error_lower text[], p_signature bigint[]
) RETURNS TABLE (id bigint, duplicate boolean) LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := sickbay.time_now(p_now);
    v_count integer := coalesce(cardinality(p_payloads), 0);
    s record;
    q sickbay.queue;
    r sickbay.waiting;
    v_known bigint;
BEGIN
    PERFORM sickbay.queue_no(name) FROM unnest(p_queues) name;
    FOR s IN SELECT DISTINCT sickbay.queue_no(u.queue) AS queue, u.stream COLLATE "C" AS stream
             FROM unnest(p_queues, p_streams) u(queue, stream) WHERE u.stream IS NOT NULL ORDER BY 1, 2 LOOP
        PERFORM sickbay.lock_stream(s.queue, s.stream);
    END LOOP;
    PERFORM 1 FROM sickbay.key k WHERE (k.queue, k.key) IN (
        SELECT sickbay.queue_no(u.queue), u.key FROM unnest(p_queues, p_keys) u(queue, key) WHERE u.key IS NOT NULL)
    ORDER BY k.queue, k.key FOR UPDATE;
    FOR i IN 1..v_count LOOP
        SELECT * INTO q FROM sickbay.queue WHERE name = p_queues[i];
        SELECT o.id INTO v_known FROM sickbay.origin o
            WHERE o.queue = q.no AND o.origin = p_origins[i] AND o.adopted_at > v_now - sickbay.origin_window();
        IF NOT FOUND AND p_keys[i] IS NOT NULL THEN
            v_known := sickbay.key_owner(q.no, p_keys[i], v_now);
        END IF;
        IF v_known IS NULL THEN
            r := NULL;
            r.id := nextval('sickbay.message_number');
            INSERT INTO sickbay.origin AS o VALUES (q.no, p_origins[i], r.id, v_now)
                ON CONFLICT (queue, origin) DO UPDATE SET id = excluded.id, adopted_at = excluded.adopted_at
                WHERE o.adopted_at <= v_now - sickbay.origin_window();
            IF NOT FOUND THEN
                SELECT o.id INTO v_known FROM sickbay.origin o WHERE o.queue = q.no AND o.origin = p_origins[i];
            END IF;
        END IF;
        IF v_known IS NOT NULL THEN
            INSERT INTO sickbay.tally (queue, duplicates) VALUES (q.no, 1);
            id := v_known;
            duplicate := true;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF p_keys[i] IS NOT NULL THEN
            UPDATE sickbay.key k SET owner = r.id, state = 0, done_until = NULL WHERE k.queue = q.no AND k.key = p_keys[i];
        END IF;
        r.queue := q.no;
        r.lane := 0;
        r.rank := p_ranks[i];
        r.due_at := v_now;
        r.pushed_at := v_now;
        r.deadline_at := sickbay.time_after(v_now, p_deadlines[i]);
        r.checksum := p_checksums[i];
        r.suspect := false;
        r.deferred := false;
        r.traces := false;
        r.type := p_types[i];
        r.stream := p_streams[i];
        r.key := p_keys[i];
        r.headers := p_headers[i];
        r.payload := p_payloads[i];
        -- The delivery at hand is counted when the decision is carried out.
        r.facts := p_facts[i * 8 - 7 : i * 8] || ARRAY[coalesce(p_message_stages[i], 0), 0];
        r.facts := ARRAY[greatest(r.facts[1], 1) - 1] || r.facts[2:10];
        PERFORM sickbay.apply(v_now, q, r, NULL, NULL, p_workers[i], p_started[i], p_acts[i], p_after[i], p_stages[i],
                              false, p_details[i], p_set_aside[i], p_kind[i], p_reason[i], p_error[i],
                              p_error_lower[i], p_signature[i], false);
        IF r.stream IS NOT NULL THEN
            PERFORM sickbay.refresh_stream(q.no, r.stream);
        END IF;
        INSERT INTO sickbay.tally (queue, pushed, live, completed, failures, quarantined, dead)
        SELECT q.no, 1, (p_acts[i] NOT IN (0, 4))::integer, (p_acts[i] = 0)::integer, (p_acts[i] IN (1, 4))::integer,
               (p_acts[i] = 4)::integer, (p_acts[i] = 4)::integer;
        PERFORM sickbay.announce(q.no);
        id := r.id;
        duplicate := false;
        RETURN NEXT;
    END LOOP;
    -- A stream that was locked for a duplicate alone may be empty.
    FOR s IN SELECT DISTINCT sickbay.queue_no(u.queue) AS queue, u.stream FROM unnest(p_queues, p_streams) u(queue, stream)
             WHERE u.stream IS NOT NULL LOOP
        PERFORM sickbay.refresh_stream(s.queue, s.stream);
    END LOOP;
END $$;
