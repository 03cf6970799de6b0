//! The contract suite on the stores of this crate.

use offspring_sessions::{MemoryStore, contract::Fixture};

mod memory {
    use super::*;

    offspring_sessions::store_contract!(|| async { Fixture::new(MemoryStore::new()) });
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use offspring_sessions::store::sqlite::{SqliteOptions, SqliteStore};

    use super::*;

    offspring_sessions::store_contract!(|| async {
        let dir = tempfile::tempdir().unwrap();
        let open = || SqliteStore::open(dir.path().join("store.db"), SqliteOptions::default()).unwrap();
        Fixture::new(open()).with_other(open()).keeping(dir)
    });
}
