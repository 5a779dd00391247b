-- Views. They take no locks.

-- Messages of these numbers wherever they are; a leased one as it was before its claim.
CREATE OR REPLACE FUNCTION sickbay.look(p_now bigint, p_ids bigint[])
RETURNS TABLE (
    place text, queue text, worker text, epoch bigint, claim bigint, m sickbay.waiting, set_aside text, kind text,
    reason text, signature bigint, error text, quarantined_at bigint, discarded_at bigint
) LANGUAGE sql STABLE SET jit = off AS $$
    SELECT x.place, q.name, x.worker, x.epoch, x.claim, x.m, x.set_aside, x.kind, x.reason, x.signature, x.error,
           x.quarantined_at, x.discarded_at
    FROM (
        SELECT 'waiting' AS place, NULL AS worker, NULL::bigint AS epoch, NULL::bigint AS claim, w AS m,
               NULL AS set_aside, NULL AS kind, NULL AS reason, NULL::bigint AS signature, NULL AS error,
               NULL::bigint AS quarantined_at, NULL::bigint AS discarded_at
        FROM sickbay.waiting w WHERE w.id = ANY (p_ids)
        UNION ALL
        SELECT 'leased', l.worker, l.epoch, l.claim, r, NULL, NULL, NULL, NULL, NULL, NULL, NULL
        FROM sickbay.lease l, unnest(l.rows) r
        WHERE l.ids && p_ids AND r.id = ANY (p_ids) AND r.id = ANY (l.ids)
        UNION ALL
        SELECT CASE WHEN d.discarded_at IS NULL THEN 'dead' ELSE 'discarded' END, NULL, NULL, NULL, d.message,
               d.set_aside, d.kind, d.reason, d.signature, d.error, d.quarantined_at, d.discarded_at
        FROM sickbay.dead d WHERE d.id = ANY (p_ids)
        UNION ALL
        SELECT 'completed', NULL, NULL, NULL, c.message, NULL, NULL, NULL, NULL, NULL, NULL, NULL
        FROM sickbay.completed c WHERE c.id = ANY (p_ids) AND c.expires_at > sickbay.time_now(p_now)
    ) x JOIN sickbay.queue q ON q.no = (x.m).queue
    ORDER BY (x.m).id LIMIT 2
$$;

-- The queues and types of messages that are live, or dead letters and may be live again in a moment.
CREATE OR REPLACE FUNCTION sickbay.types_of(p_ids bigint[]) RETURNS TABLE (id bigint, queue text, type text)
LANGUAGE sql STABLE AS $$
    SELECT x.id, q.name, x.type FROM (
        SELECT w.id, w.queue, w.type FROM sickbay.waiting w WHERE w.id = ANY (p_ids)
        UNION ALL
        SELECT r.id, r.queue, r.type FROM sickbay.lease l, unnest(l.rows) r
        WHERE l.ids && p_ids AND r.id = ANY (p_ids) AND r.id = ANY (l.ids)
        UNION ALL
        SELECT d.id, d.queue, d.type FROM sickbay.dead d WHERE d.id = ANY (p_ids)
    ) x JOIN sickbay.queue q ON q.no = x.queue
$$;

-- Figures of a queue.
CREATE OR REPLACE FUNCTION sickbay.stats(p_now bigint, p_queue integer)
RETURNS TABLE (
    live bigint, active bigint, dead bigint, discarded bigint, pushed bigint, completed bigint, duplicates bigint,
    failures bigint, quarantined bigint, replayed bigint, removed bigint, scheduled bigint, failed bigint,
    next_due_at bigint, latest_due_at bigint, retries text, reasons text, gates text
) LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off AS $$
    SELECT t.live, l.active, t.dead, t.discarded, t.pushed, t.completed, t.duplicates, t.failures, t.quarantined,
           t.replayed, t.removed, w.scheduled, w.failed, w.next_due_at, w.latest_due_at,
           (SELECT json_agg(json_build_array(x.failures, x.type, x.count))::text FROM (
                SELECT facts[2] AS failures, type, count(*) FROM sickbay.waiting
                WHERE queue = p_queue AND facts[2] > 0 GROUP BY 1, 2) x),
           (SELECT json_agg(json_build_array(x.reason, x.count))::text FROM (
                SELECT reason, count(*) FROM sickbay.dead WHERE queue = p_queue AND discarded_at IS NULL GROUP BY 1) x),
           (SELECT json_agg(json_build_array(x.type, x.gate, x.probes_left) ORDER BY x.type)::text
            FROM sickbay.type_gate x WHERE x.queue = p_queue)
    FROM (SELECT coalesce(sum(live), 0)::bigint AS live, coalesce(sum(dead), 0)::bigint AS dead,
                 coalesce(sum(discarded), 0)::bigint AS discarded, coalesce(sum(pushed), 0)::bigint AS pushed,
                 coalesce(sum(completed), 0)::bigint AS completed, coalesce(sum(duplicates), 0)::bigint AS duplicates,
                 coalesce(sum(failures), 0)::bigint AS failures, coalesce(sum(quarantined), 0)::bigint AS quarantined,
                 coalesce(sum(replayed), 0)::bigint AS replayed, coalesce(sum(removed), 0)::bigint AS removed
          FROM sickbay.tally WHERE queue = p_queue) t,
         (SELECT coalesce(sum(cardinality(ids)), 0)::bigint AS active FROM sickbay.lease WHERE queue = p_queue) l,
         (SELECT coalesce(sum(x.scheduled), 0)::bigint AS scheduled, coalesce(sum(x.failed), 0)::bigint AS failed,
                 min(x.first) AS next_due_at, max(x.last) AS latest_due_at
          FROM generate_series(0, 3) a, generate_series(0, 9) b, LATERAL (
              SELECT count(*) FILTER (WHERE y.facts[2] IS NULL OR y.facts[2] = 0) AS scheduled,
                     count(*) FILTER (WHERE y.facts[2] > 0) AS failed, min(y.due_at) AS first, max(y.due_at) AS last
              FROM sickbay.waiting y
              WHERE y.queue = p_queue AND y.lane = a AND y.rank = b AND y.due_at > sickbay.time_now(p_now)) x) w
$$;

-- The streams of a queue, blocked ones first; or one of them.
CREATE OR REPLACE FUNCTION sickbay.streams(p_now bigint, p_queue integer, p_key text, p_max bigint)
RETURNS TABLE (key text, state integer, head bigint, since bigint, due_at bigint, length bigint)
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off AS $$
    SELECT x.key, x.state, CASE x.state WHEN 2 THEN x.leased_id WHEN 0 THEN x.hold_id ELSE x.head_id END,
           CASE x.state WHEN 2 THEN x.leased_since WHEN 0 THEN x.hold_since END,
           CASE WHEN x.state IN (1, 3) THEN x.head_due END, x.length
    FROM (
        SELECT s.key, CASE WHEN s.leased > 0 THEN 2
                           WHEN h.id < coalesce(f.id, 9223372036854775807) THEN 0
                           WHEN coalesce(f.due_at, n.due_at) > sickbay.time_now(p_now) THEN 1 ELSE 3 END AS state,
               l.id AS leased_id, l.since AS leased_since, h.id AS hold_id, h.since AS hold_since,
               coalesce(f.id, n.id) AS head_id, coalesce(f.due_at, n.due_at) AS head_due, c.length + d.length + s.leased AS length
        FROM sickbay.stream s
        LEFT JOIN LATERAL (SELECT r.id, y.claimed_at AS since FROM sickbay.lease y, unnest(y.rows) r
                           WHERE s.leased > 0 AND y.queue = p_queue AND r.stream = s.key AND r.id = ANY (y.ids)
                           ORDER BY r.id LIMIT 1) l ON true
        LEFT JOIN LATERAL (SELECT y.id, y.since FROM sickbay.hold y WHERE y.queue = p_queue AND y.key = s.key
                           ORDER BY y.id LIMIT 1) h ON true
        LEFT JOIN LATERAL (SELECT y.id, y.due_at FROM sickbay.waiting y
                           WHERE y.queue = p_queue AND y.stream = s.key AND NOT y.deferred ORDER BY y.id LIMIT 1) f ON true
        LEFT JOIN LATERAL (SELECT y.id, y.due_at FROM sickbay.waiting y
                           WHERE f.id IS NULL AND y.queue = p_queue AND y.stream = s.key AND y.deferred
                           ORDER BY y.due_at, y.id LIMIT 1) n ON true,
        LATERAL (SELECT count(*) AS length FROM sickbay.waiting y WHERE y.queue = p_queue AND y.stream = s.key) c,
        LATERAL (SELECT count(*) AS length FROM sickbay.hold y WHERE y.queue = p_queue AND y.key = s.key) d
        WHERE s.queue = p_queue AND (p_key IS NULL OR s.key = p_key)
    ) x ORDER BY x.state, x.key LIMIT p_max
$$;

-- The entries of a stream in their order.
CREATE OR REPLACE FUNCTION sickbay.entries(p_queue integer, p_key text, p_max bigint)
RETURNS TABLE (id bigint, type text, leased boolean, due_at bigint, deferred boolean, failures integer)
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off AS $$
    SELECT x.id, x.type, x.leased, x.due_at, x.deferred, x.failures FROM (
        (SELECT w.id, w.type, false AS leased, w.due_at, w.deferred, coalesce(w.facts[2], 0) AS failures
         FROM sickbay.waiting w WHERE w.queue = p_queue AND w.stream = p_key AND NOT w.deferred ORDER BY w.id LIMIT p_max)
        UNION ALL
        (SELECT w.id, w.type, false, w.due_at, w.deferred, coalesce(w.facts[2], 0)
         FROM sickbay.waiting w WHERE w.queue = p_queue AND w.stream = p_key AND w.deferred ORDER BY w.id LIMIT p_max)
        UNION ALL
        SELECT r.id, r.type, true, r.due_at, r.deferred, coalesce(r.facts[2], 0)
        FROM sickbay.stream s, sickbay.lease l, unnest(l.rows) r
        WHERE s.queue = p_queue AND s.key = p_key AND s.leased > 0 AND l.queue = p_queue AND r.stream = p_key
            AND r.id = ANY (l.ids)
    ) x ORDER BY x.id LIMIT p_max
$$;
