-- The database's clock in milliseconds, or the time given instead of it.
CREATE OR REPLACE FUNCTION sickbay.time_now(p_now bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(p_now, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- So long after a time; no later than the end of time.
CREATE OR REPLACE FUNCTION sickbay.time_after(p_now bigint, p_ms bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_ms > 9223372036854775807 - p_now THEN 9223372036854775807 ELSE p_now + p_ms END
$$;

-- The number of a queue, or the error that there is none.
CREATE OR REPLACE FUNCTION sickbay.queue_no(p_queue text) RETURNS integer LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
    v_no integer;
BEGIN
    SELECT no INTO v_no FROM sickbay.queue WHERE name = p_queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no queue "%"', p_queue USING ERRCODE = 'SB001', DETAIL = p_queue;
    END IF;
    RETURN v_no;
END $$;

-- Wakes those who wait for a queue, if there are any.
CREATE OR REPLACE FUNCTION sickbay.announce(p_queue integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM sickbay.waiter WHERE queue = p_queue AND until > sickbay.time_now(NULL)) THEN
        PERFORM pg_notify('sickbay.wake', (SELECT name FROM sickbay.queue WHERE no = p_queue));
    END IF;
END $$;
