//! Stops transactions in the middle. Triggers let every transaction wait for a lock that the one who looks on may hold:
//! before a statement writes to a table, and before the commit.

use std::collections::HashSet;

use anyhow::{Result, bail};
use tokio_postgres::Client;

/// Where a transaction can be stopped: before it writes to one of these tables, or before it commits.
pub(super) const PLACES: [&str; 8] =
    ["commit", "waiting", "lease", "stream", "key", "dead", "tally", "type_gate"];

/// The tables whose changes make a transaction stop before its commit.
const CHANGED: [&str; 10] =
    ["waiting", "lease", "stream", "key", "dead", "tally", "type_gate", "hold", "meta", "completed"];

/// How often the one who looks on asks whether everybody waits.
const LOOKS_MAX: u32 = 200_000;

/// Which lock a program waits for at a place. Programs are told apart by the name of their connection.
const LOCK: &str = "4711, hashtext($1 || ' ' || $2)";

/// Makes the triggers in a schema.
pub(super) async fn install(client: &Client, schema: &str) -> Result<()> {
    let mut sql = format!(
        "CREATE FUNCTION {schema}.stop_here() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_advisory_xact_lock_shared(
                 4711, hashtext(current_setting('application_name') || ' ' || TG_ARGV[0]));
             RETURN NULL;
         END $$;"
    );
    for table in &PLACES[1..] {
        sql += &format!(
            "CREATE TRIGGER stop_before BEFORE INSERT OR UPDATE OR DELETE ON {schema}.{table}
             FOR EACH STATEMENT EXECUTE FUNCTION {schema}.stop_here('{table}');"
        );
    }
    for table in CHANGED {
        sql += &format!(
            "CREATE CONSTRAINT TRIGGER stop_at_commit AFTER INSERT OR UPDATE OR DELETE ON {schema}.{table}
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.stop_here('commit');"
        );
    }
    client.batch_execute(&sql).await?;
    Ok(())
}

/// Whoever comes to this place under this name waits there.
pub(super) async fn hold(client: &Client, name: &str, place: &str) -> Result<()> {
    client.execute(&format!("SELECT pg_advisory_lock({LOCK})"), &[&name, &place]).await?;
    Ok(())
}

/// Lets them go on.
pub(super) async fn release(client: &Client, name: &str, place: &str) -> Result<()> {
    client.execute(&format!("SELECT pg_advisory_unlock({LOCK})"), &[&name, &place]).await?;
    Ok(())
}

/// The names of those that wait for a lock, of any kind.
async fn waiting(client: &Client) -> Result<HashSet<String>> {
    let sql =
        "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted";
    Ok(client.query(sql, &[]).await?.iter().map(|row| row.get(0)).collect())
}

/// Looks on until everybody who is busy waits for a lock. Answers how many do.
pub(super) async fn come_to_rest(client: &Client, busy: impl Fn() -> Vec<String>) -> Result<usize> {
    for _ in 0..LOOKS_MAX {
        // Somebody who comes to an end during the look may have let others go on after it.
        let busy = busy();
        let waiting = waiting(client).await?;
        if busy.iter().all(|name| waiting.contains(name)) {
            return Ok(busy.len());
        }
        tokio::task::yield_now().await;
    }
    bail!("{:?} neither come to an end nor wait for a lock", busy())
}

/// Those of `names` that wait, directly or not, for the one called `holder`.
pub(super) async fn kept_by(client: &Client, holder: &str, names: &[String]) -> Result<Vec<String>> {
    let sql = "WITH RECURSIVE kept(pid) AS (
            SELECT a.pid FROM pg_stat_activity a JOIN pg_stat_activity h ON h.application_name = $1
            WHERE h.pid = ANY (pg_blocking_pids(a.pid))
            UNION SELECT a.pid FROM kept k, pg_stat_activity a WHERE k.pid = ANY (pg_blocking_pids(a.pid)))
        SELECT DISTINCT a.application_name FROM kept JOIN pg_stat_activity a USING (pid)
        WHERE a.application_name = ANY ($2)";
    Ok(client.query(sql, &[&holder, &names]).await?.iter().map(|row| row.get(0)).collect())
}

/// Those that wait for each other, if anybody does.
pub(super) async fn circle(client: &Client) -> Result<Vec<String>> {
    let sql = "WITH RECURSIVE waits(pid, held) AS (
            SELECT a.pid, b FROM pg_stat_activity a, unnest(pg_blocking_pids(a.pid)) b
            UNION SELECT w.pid, b FROM waits w, unnest(pg_blocking_pids(w.held)) b)
        SELECT DISTINCT a.application_name FROM waits w JOIN pg_stat_activity a USING (pid)
        WHERE w.pid = w.held ORDER BY 1";
    Ok(client.query(sql, &[]).await?.iter().map(|row| row.get(0)).collect())
}
