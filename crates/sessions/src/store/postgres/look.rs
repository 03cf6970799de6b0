//! Looking at a database without becoming one of its users: nothing is made, migrated or leased.

use std::time::{Duration, Instant};

use super::{
    PostgresAddress,
    fault::{Fault, Place},
    link::LIVES,
    read::get,
    schema, tls,
};
use crate::store::StoreError;

/// How long a look waits for the server.
const BOUND: Duration = Duration::from_secs(10);

/// What there is at the address of a store, see [`look`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresLook {
    /// What the server calls its version.
    pub server: String,
    /// Whether the connection is encrypted and the server's certificate was right.
    pub is_verified: bool,
    /// How long a question and its answer took.
    pub round_trip: Duration,
    /// The version of our tables; `None` when there are none yet.
    pub schema: Option<u32>,
    /// The newest version this program knows.
    pub newest_schema: u32,
    /// How many roots it holds.
    pub roots: u64,
    /// How many sessions it holds, roots too.
    pub sessions: u64,
    /// Bytes of our tables with all that is in them.
    pub bytes: u64,
    /// Programs whose lease is not over.
    pub open_by: u64,
}

/// Looks at the store at this address.
///
/// # Errors
/// What [`PostgresStore::open`](super::PostgresStore::open) would say.
pub async fn look(address: &PostgresAddress) -> Result<PostgresLook, StoreError> {
    let place = Place { name: address.to_string(), patience: BOUND };
    let tls =
        tls::connector(address.is_verified(), address.roots()).map_err(|detail| place.unusable(detail))?;
    let started = Instant::now();
    let looking = async {
        let config = address.config(&[("search_path", address.schema().to_owned())]);
        let (client, connection) = config.connect(tls).await?;
        let connection = tokio::spawn(connection);
        let asked = Instant::now();
        let row = client.query_one("SELECT current_setting('server_version')", &[]).await?;
        let mut look = PostgresLook {
            server: get(&row, 0)?,
            is_verified: address.is_verified(),
            round_trip: asked.elapsed(),
            schema: schema::version(&client, &place, address.schema()).await?,
            newest_schema: schema::VERSION,
            roots: 0,
            sessions: 0,
            bytes: 0,
            open_by: 0,
        };
        if look.schema.is_some() {
            let sql = format!(
                "SELECT (SELECT count(*) FROM trees), (SELECT count(*) FROM sessions), \
                 (SELECT count(*) FROM owners o WHERE {LIVES}), \
                 (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c \
                  WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r')"
            );
            let row = client.query_one(&sql, &[]).await?;
            let number = |column: usize| get::<i64>(&row, column).map(i64::unsigned_abs);
            (look.roots, look.sessions) = (number(0)?, number(1)?);
            (look.open_by, look.bytes) = (number(2)?, number(3)?);
        }
        drop(client);
        let _ = connection.await;
        Ok(look)
    };
    let looked = match tokio::time::timeout(BOUND, looking).await {
        Ok(looked) => looked,
        Err(_) => Err(Fault::Lost("the server does not answer".to_owned())),
    };
    looked.map_err(|fault| place.fault(fault, started.elapsed()))
}
