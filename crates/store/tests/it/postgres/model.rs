//! The same random scripts on the memory store and on PostgreSQL: nobody can tell them apart.

use sickbay_testkit::model::compare;

use super::PostgresFixture;
use crate::memory::MemoryFixture;

#[test]
fn memory_and_postgres_never_differ() {
    let seeds = std::env::var("SICKBAY_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    for seed in 0..seeds {
        compare(MemoryFixture::new, PostgresFixture::new, seed, 80);
    }
}
