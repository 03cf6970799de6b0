//! The schema, its versions, and whether the tables are ours.

use offspring_protocol::SessionId;
use sha2::{Digest, Sha256};
use tokio_postgres::{Client, GenericClient, Transaction, error::SqlState};

use super::{
    fault::{Fault, Place},
    link::LIVES,
};
use crate::store::StoreError;

/// Name and SQL of each version, from 1; never changed once released, only added to.
pub(super) const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_sessions", include_str!("../../../migrations/postgres/0001_sessions.sql")),
    ("0002_origins", include_str!("../../../migrations/postgres/0002_origins.sql")),
];

/// The newest schema this program knows, and the one of every store it has opened.
#[expect(clippy::cast_possible_truncation, reason = "a handful")]
pub const VERSION: u32 = MIGRATIONS.len() as u32;

/// Transactions can be asked for by their number, as 64 bits, from this version on.
const OLDEST_SERVER: i32 = 130_000;

/// One who makes or changes the tables at a time; any number will do that nobody else uses.
const LOCK: i64 = 0x4F46_5350;

/// Makes the tables where there are none, and brings those of an older version to ours.
pub(super) async fn migrate(client: &mut Client, place: &Place, schema: &str) -> Result<(), Fault> {
    check_server(client).await?;
    if version(client, place, schema).await? == Some(VERSION) {
        return Ok(());
    }
    let tx = client.transaction().await?;
    tx.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    // Again, now that nobody else can be at it.
    let present = version(&tx, place, schema).await?;
    if present == Some(VERSION) {
        return Ok(());
    }
    if let Some(found) = present {
        refuse_at_work(&tx, place, found).await?;
    } else {
        let there = tx.query_opt("SELECT FROM pg_namespace WHERE nspname = $1", &[&schema]).await?;
        if there.is_none() {
            // It is a plain name.
            tx.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
        }
        refuse_tables_of_others(&tx, schema).await?;
        tx.batch_execute(
            "CREATE TABLE migrations (version bigint PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL)",
        )
        .await?;
    }
    for (number, (name, sql)) in (1_i64..).zip(MIGRATIONS) {
        if number > i64::from(present.unwrap_or_default()) {
            tx.batch_execute(sql).await?;
            tx.execute("INSERT INTO migrations VALUES ($1, $2, $3)", &[&number, name, &sha256(sql)]).await?;
        }
    }
    tx.commit().await?;
    Ok(())
}

/// What this version of the server and this database cannot do.
async fn check_server(client: &Client) -> Result<(), Fault> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), \
             current_setting('server_version')",
            &[],
        )
        .await?;
    let (number, encoding, version): (i32, String, String) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if number < OLDEST_SERVER {
        return Err(Fault::Unusable(format!(
            "the server is PostgreSQL {version}, and 13 or later is needed"
        )));
    }
    if encoding != "UTF8" {
        return Err(Fault::Unusable(format!(
            "the database is in {encoding}, and texts are UTF-8: createdb -E UTF8 -T template0 NAME"
        )));
    }
    Ok(())
}

/// The version of our tables; `None` where there are none.
pub(super) async fn version(
    client: &impl GenericClient,
    place: &Place,
    schema: &str,
) -> Result<Option<u32>, Fault> {
    let table = "SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'migrations'";
    if client.query(table, &[&schema]).await?.is_empty() {
        return Ok(None);
    }
    let applied = match client.query("SELECT name, sha256 FROM migrations ORDER BY version", &[]).await {
        Ok(applied) => applied,
        // It is a table of that name, and none of ours.
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_COLUMN) => {
            return Err(others(schema));
        }
        Err(error) => return Err(error.into()),
    };
    let found = u32::try_from(applied.len()).unwrap_or(u32::MAX);
    for ((name, sql), row) in MIGRATIONS.iter().zip(&applied) {
        if row.try_get::<_, &str>(0)? != *name {
            return Err(others(schema));
        }
        if row.try_get::<_, &str>(1)? != sha256(sql) {
            return Err(Fault::Row(format!("migration {name} was applied in another form")));
        }
    }
    if found > VERSION {
        return Err(StoreError::Newer { store: place.name.clone(), found, supported: VERSION }.into());
    }
    Ok(Some(found))
}

fn others(schema: &str) -> Fault {
    Fault::Unusable(format!(
        "the schema {schema} holds tables of another program; name another one with ?schema=NAME"
    ))
}

async fn refuse_tables_of_others(tx: &Transaction<'_>, schema: &str) -> Result<(), Fault> {
    let any = tx.query("SELECT FROM pg_tables WHERE schemaname = $1 LIMIT 1", &[&schema]).await?;
    if any.is_empty() { Ok(()) } else { Err(others(schema)) }
}

/// A program of the older version that is at work would go on writing to what is no longer there.
async fn refuse_at_work(tx: &Transaction<'_>, place: &Place, found: u32) -> Result<(), Fault> {
    let sql = format!(
        "SELECT s.id FROM trees t JOIN sessions s ON s.key = t.key JOIN owners o ON o.id = t.owner \
         WHERE t.open_runs > 0 AND {LIVES} LIMIT 1"
    );
    let Some(row) = tx.query_opt(&sql, &[]).await? else { return Ok(()) };
    let root = SessionId::new(row.try_get::<_, &str>(0)?).map_err(|error| Fault::Row(error.to_string()))?;
    Err(StoreError::InUse { store: place.name.clone(), found, supported: VERSION, root }.into())
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn files(folder: &str) -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(folder);
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn both_databases_have_the_same_migrations() {
        let ours: Vec<String> = MIGRATIONS.iter().map(|(name, _)| format!("{name}.sql")).collect();
        assert_eq!(files("postgres"), ours);
        assert_eq!(files("sqlite"), ours);
    }

    /// A database that was migrated is never migrated again by the same number. Add a migration instead, and its sum.
    #[test]
    fn a_released_migration_never_changes() {
        let released = [
            ("0001_sessions", "676b3553f1789852c6c6ebf4ed58e70344f0fba8e923843d62633f2272ef3416"),
            ("0002_origins", "ab537027d1a7add6937eb1bc9eea07f2bddeec97d1527a8d20f75bc350a411fd"),
        ];
        let found: Vec<(&str, String)> = MIGRATIONS.iter().map(|(name, sql)| (*name, sha256(sql))).collect();
        let found: Vec<(&str, &str)> = found.iter().map(|(name, sum)| (*name, sum.as_str())).collect();
        assert_eq!(found, released);
    }
}
