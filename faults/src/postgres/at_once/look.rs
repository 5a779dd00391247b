//! What holds in a database at every moment, whoever is in the middle of something.

use std::collections::BTreeSet;

use anyhow::Result;
use tokio_postgres::{Client, Statement};

/// Each line of the answer is something that should not be.
const WRONG: &str = "
WITH leased AS (
    SELECT l.claim, l.process, l.suspect AS alone, x.* FROM sickbay.lease l, unnest(l.rows) x WHERE x.id = ANY (l.ids)
), place AS (
    SELECT id, 'waits' AS place FROM sickbay.waiting
    UNION ALL SELECT id, 'is leased' FROM leased
    UNION ALL SELECT id, 'is dead' FROM sickbay.dead
    UNION ALL SELECT id, 'is completed' FROM sickbay.completed
), first AS (
    SELECT w.queue, w.stream, min(w.id) AS id FROM sickbay.waiting w
    WHERE w.stream IS NOT NULL AND NOT w.deferred GROUP BY 1, 2
), total AS (
    SELECT queue, sum(live) AS live, sum(dead) AS dead, sum(discarded) AS discarded, sum(pushed) AS pushed,
           sum(completed) AS completed, sum(removed) AS removed FROM sickbay.tally GROUP BY 1
)
SELECT 'message ' || id || ' ' || string_agg(place, ' and ') FROM place GROUP BY id HAVING count(*) > 1
UNION ALL
SELECT 'stream ' || stream || ' is in several hands' FROM leased WHERE stream IS NOT NULL
GROUP BY queue, stream HAVING count(DISTINCT claim) > 1
UNION ALL
SELECT 'stream ' || s.key || ' counts ' || s.leased || ' leased entries, and has ' || count(l.id)
FROM sickbay.stream s LEFT JOIN leased l ON l.queue = s.queue AND l.stream = s.key
GROUP BY s.queue, s.key, s.leased HAVING s.leased <> count(l.id)
UNION ALL
SELECT 'message ' || x.id || ' is of a stream that is not there' FROM (
    SELECT id, queue, stream FROM leased UNION ALL SELECT id, queue, stream FROM sickbay.waiting) x
WHERE x.stream IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM sickbay.stream s WHERE s.queue = x.queue AND s.key = x.stream)
UNION ALL
SELECT 'message ' || w.id || ' is next in its stream and nobody can claim it' FROM sickbay.waiting w
JOIN first f ON f.id = w.id JOIN sickbay.stream s ON s.queue = w.queue AND s.key = w.stream
WHERE w.lane = 1 AND s.leased = 0
    AND NOT EXISTS (SELECT 1 FROM sickbay.hold h WHERE h.queue = w.queue AND h.key = w.stream AND h.id < w.id)
UNION ALL
SELECT 'message ' || w.id || ' is deferred in a free stream and nobody can claim it' FROM sickbay.waiting w
JOIN sickbay.stream s ON s.queue = w.queue AND s.key = w.stream WHERE w.lane = 1 AND w.deferred AND s.leased = 0
UNION ALL
SELECT 'message ' || w.id || ' can be claimed out of turn' FROM sickbay.waiting w
JOIN sickbay.stream s ON s.queue = w.queue AND s.key = w.stream LEFT JOIN first f ON f.id = w.id
WHERE w.lane <> 1 AND (s.leased > 0 OR NOT w.deferred AND f.id IS NULL OR NOT w.deferred AND EXISTS (
    SELECT 1 FROM sickbay.hold h WHERE h.queue = w.queue AND h.key = w.stream AND h.id < w.id))
UNION ALL
SELECT 'process ' || process || ' holds a suspect and ' || count(*) - 1 || ' others' FROM leased
GROUP BY process HAVING bool_or(alone) AND count(*) > 1
UNION ALL
SELECT 'message ' || w.id || ' waits behind a gate that is open' FROM sickbay.waiting w
WHERE w.lane = 2 AND NOT EXISTS (SELECT 1 FROM sickbay.type_gate g WHERE g.queue = w.queue AND g.type = w.type)
UNION ALL
SELECT 'message ' || id || ' is suspect and lies among the others' FROM sickbay.waiting WHERE suspect AND lane = 0
UNION ALL
SELECT 'message ' || id || ' is not suspect and lies among them' FROM sickbay.waiting WHERE NOT suspect AND lane = 3
UNION ALL
SELECT 'key ' || key || ' belongs to message ' || owner || ', which is not live' FROM sickbay.key
WHERE state = 0 AND owner NOT IN (SELECT id FROM sickbay.waiting UNION SELECT id FROM leased)
UNION ALL
SELECT 'message ' || h.id || ' holds its stream up and is no dead letter' FROM sickbay.hold h
WHERE NOT EXISTS (SELECT 1 FROM sickbay.dead d WHERE d.id = h.id AND d.discarded_at IS NULL)
UNION ALL
SELECT 'queue ' || t.queue || ' counts ' || t.live || ' live messages, and has ' || n FROM total t, LATERAL (
    SELECT (SELECT count(*) FROM sickbay.waiting w WHERE w.queue = t.queue)
         + (SELECT count(*) FROM leased l WHERE l.queue = t.queue) AS n) x WHERE t.live <> n
UNION ALL
SELECT 'queue ' || t.queue || ' counts ' || t.dead || ' dead letters, and has ' || n FROM total t, LATERAL (
    SELECT count(*) AS n FROM sickbay.dead d WHERE d.queue = t.queue AND d.discarded_at IS NULL) x WHERE t.dead <> n
UNION ALL
SELECT 'queue ' || queue || ' does not add up' FROM total
WHERE pushed <> live + dead + discarded + completed + removed";

/// The messages that are there.
const PRESENT: &str = "
SELECT id FROM sickbay.waiting UNION SELECT unnest(ids) FROM sickbay.lease UNION SELECT id FROM sickbay.dead
UNION SELECT id FROM sickbay.completed";

/// Looks at a schema.
pub(super) struct Look {
    wrong: Statement,
    present: Statement,
}

impl Look {
    pub(super) async fn at(client: &Client, schema: &str) -> Result<Self> {
        let there = |sql: &str| sql.replace("sickbay.", &format!("{schema}."));
        let (wrong, present) = (client.prepare(&there(WRONG)).await?, client.prepare(&there(PRESENT)).await?);
        Ok(Self { wrong, present })
    }

    /// What is wrong.
    pub(super) async fn wrong(&self, client: &Client) -> Result<Vec<String>> {
        Ok(client.query(&self.wrong, &[]).await?.iter().map(|row| row.get(0)).collect())
    }

    /// The messages that are there.
    pub(super) async fn present(&self, client: &Client) -> Result<BTreeSet<u64>> {
        Ok(client.query(&self.present, &[]).await?.iter().map(|row| row.get::<_, i64>(0) as u64).collect())
    }
}
