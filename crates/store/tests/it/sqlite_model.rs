//! The same random scripts on the memory store and on SQLite: nobody can tell them apart.

use sickbay_testkit::model::compare;

use crate::memory::MemoryFixture;
use crate::sqlite::SqliteFixture;

#[test]
fn memory_and_sqlite_never_differ() {
    let seeds = std::env::var("SICKBAY_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        compare(MemoryFixture::new, SqliteFixture::new, seed, 80);
    }
}
