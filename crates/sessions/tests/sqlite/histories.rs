//! Random histories: the file and the memory store answer the same.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use proptest::prelude::*;

use crate::{
    any_history::{Names, compare, history},
    plant::open,
};

#[test]
fn l16_any_history_is_answered_and_kept_as_by_the_store_in_memory() {
    static HISTORIES: AtomicU64 = AtomicU64::new(0);
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let file = open(Path::new(&dir.path().join("store.db")));
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(history in history())| {
        let names = Names(HISTORIES.fetch_add(1, Ordering::Relaxed));
        runtime.block_on(compare(&file, &names, &history));
    });
}
