//! Random histories: the database and the memory store answer the same.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use crate::{
    any_history::{Names, compare, history},
    open, place,
};

#[test]
fn l16_any_history_is_answered_and_kept_as_by_the_store_in_memory() {
    static HISTORIES: AtomicU64 = AtomicU64::new(0);
    let Some(server) = place::server("l16_any_history") else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(open(&place::fresh(&server)));
    let config = ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(history in history())| {
        let names = Names(HISTORIES.fetch_add(1, Ordering::Relaxed));
        runtime.block_on(compare(&store, &names, &history));
    });
}
