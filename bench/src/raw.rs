//! The hand-written loop: layout D of the notes, with nothing of what makes it a queue. Immutable rows
//! read by a cursor, one journal row a batch, one commit a batch.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use rusqlite::Connection;

use crate::load::payload;

/// Messages a second through insert, claim and acknowledgement, `batch` at a time.
pub(crate) fn rate(folder: &Path, count: u64, batch: u64) -> Result<f64> {
    let path = folder.join("raw.db");
    let connection = Connection::open(&path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY;
         PRAGMA wal_autocheckpoint = 4000;
         CREATE TABLE msg (id INTEGER PRIMARY KEY, queue INT, payload BLOB);
         CREATE TABLE claim (cid INTEGER PRIMARY KEY, until INT, lo INT, hi INT, ids BLOB);",
    )?;
    let log = std::fs::OpenOptions::new().write(true).open(folder.join("raw.db-wal"))?;
    let zeros = vec![0u8; 17 << 20];
    std::os::unix::fs::FileExt::write_all_at(&log, &zeros[..(17 << 20) - 4096 * 8], 4096 * 8)?;
    log.sync_all()?;
    let body = payload(0);
    let mut next = 1u64;
    insert(&connection, &mut next, 1000, &body)?;
    let begin = Instant::now();
    let (mut cursor, mut done, mut held): (i64, u64, Option<(i64, i64, i64)>) = (0, 0, None);
    while done < count {
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        if let Some((claim, low, high)) = held.take() {
            connection.prepare_cached("DELETE FROM msg WHERE id BETWEEN ?1 AND ?2")?.execute([low, high])?;
            connection.prepare_cached("DELETE FROM claim WHERE cid = ?1")?.execute([claim])?;
            done += batch;
        }
        insert_rows(&connection, &mut next, batch, &body)?;
        let mut bodies: Vec<(i64, Vec<u8>)> = Vec::with_capacity(batch as usize);
        let mut select =
            connection.prepare_cached("SELECT id, payload FROM msg WHERE id > ?1 ORDER BY id LIMIT ?2")?;
        let mut rows = select.query([cursor, batch as i64])?;
        while let Some(row) = rows.next()? {
            bodies.push((row.get(0)?, row.get(1)?));
        }
        let (low, high) = (bodies[0].0, bodies[bodies.len() - 1].0);
        cursor = high;
        connection
            .prepare_cached("INSERT INTO claim (until, lo, hi) VALUES (?1, ?2, ?3)")?
            .execute([0, low, high])?;
        held = Some((connection.last_insert_rowid(), low, high));
        connection.prepare_cached("COMMIT")?.execute([])?;
    }
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

fn insert(connection: &Connection, next: &mut u64, count: u64, body: &[u8]) -> Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    insert_rows(connection, next, count, body)?;
    connection.execute_batch("COMMIT")?;
    Ok(())
}

fn insert_rows(connection: &Connection, next: &mut u64, count: u64, body: &[u8]) -> Result<()> {
    let mut statement =
        connection.prepare_cached("INSERT INTO msg (id, queue, payload) VALUES (?1, 1, ?2)")?;
    for _ in 0..count {
        statement.execute((*next as i64, body))?;
        *next += 1;
    }
    Ok(())
}
