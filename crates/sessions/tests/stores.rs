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

#[cfg(feature = "postgres")]
#[path = "postgres/place.rs"]
mod place;

#[cfg(feature = "postgres")]
mod postgres {
    use offspring_sessions::store::postgres::{PostgresOptions, PostgresStore};

    use super::*;

    offspring_sessions::store_contract!(|| async {
        let name = std::thread::current().name().unwrap_or("contract").to_owned();
        let Some(server) = place::server(&name) else { return Fixture::new(MemoryStore::new()) };
        let address = place::fresh(&server);
        let options = PostgresOptions { connections: 3, ..PostgresOptions::default() };
        let open = || PostgresStore::open(&address, options);
        Fixture::new(open().await.unwrap()).with_other(open().await.unwrap())
    });
}
