//! What only the store in a database must do: share it between processes, outlive them, and lose nothing when the
//! connection goes.
#![cfg(all(feature = "postgres", unix))]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod access;
#[path = "../parts/any_history.rs"]
mod any_history;
mod histories;
mod loss;
#[allow(dead_code, reason = "shared with the tests of files")]
#[path = "../parts/other_process.rs"]
mod other_process;
mod place;
#[path = "../parts/planted.rs"]
mod planted;
mod processes;
mod proxy;
mod schema;
#[path = "../../../../xtask/src/postgres/server.rs"]
mod server;
mod watching;

use std::{path::PathBuf, time::Duration};

use offspring_sessions::store::{
    OwnerState, SessionStore,
    postgres::{PostgresAddress, PostgresOptions, PostgresStore},
};
use server::Server;

/// Far more than anything here takes.
const BOUND: Duration = Duration::from_secs(30);

async fn open(address: &PostgresAddress) -> PostgresStore {
    PostgresStore::open(address, PostgresOptions::default()).await.unwrap()
}

/// With a lease that is over soon.
async fn short_lived(address: &PostgresAddress) -> PostgresStore {
    let options = PostgresOptions { lease: Duration::from_millis(600), ..PostgresOptions::default() };
    PostgresStore::open(address, options).await.unwrap()
}

/// A server that this test may stop and kill; `None` where there is none to be had, and then the test is counted.
fn own_server(test: &str) -> Option<Server> {
    place::server(test)?;
    let programs = std::env::var_os("OFFSPRING_POSTGRES_BIN").map(PathBuf::from);
    let programs = server::programs(programs);
    let programs =
        programs.unwrap_or_else(|| panic!("OFFSPRING_POSTGRES_BIN does not name the programs of a server"));
    Some(Server::start(&programs, false).unwrap())
}

async fn until_dead(store: &dyn SessionStore, owner: &str) {
    let looking = async {
        while store.owner_state(owner.parse().unwrap()).await.unwrap() == OwnerState::Alive {
            // poll: the end of a lease announces nothing
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(BOUND, looking).await.is_ok(), "its lease is never over");
}
