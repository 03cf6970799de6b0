//! The tables: made once, of one version, and never among those of others.

use futures_util::future::join_all;
use offspring_sessions::store::Write;
use offspring_sessions::store::{
    SessionStore, StoreError,
    postgres::{PostgresAddress, PostgresOptions, PostgresStore, SCHEMA_VERSION},
};

use crate::{
    open, place,
    planted::{Planted, id, line, log, run},
};

async fn sql(url: &str, statements: &str) {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(statements).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
}

async fn refused(address: &PostgresAddress) -> StoreError {
    PostgresStore::open(address, PostgresOptions::default()).await.unwrap_err()
}

#[tokio::test]
async fn eight_that_open_it_at_once_make_one() {
    let Some(url) = place::server("eight_at_once") else { return };
    let address = place::fresh(&url);
    let stores = join_all((0..8).map(|_| open(&address))).await;
    Planted::new(&stores[0], "root").await;
    for store in &stores {
        assert!(store.session(id("root")).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left() {
    let Some(url) = place::server("newer_schema") else { return };
    let address = place::fresh(&url);
    open(&address).await.close().await.unwrap();
    let newer = format!("INSERT INTO {}.migrations VALUES (3, '0003_later', 'x')", address.schema());
    sql(&url, &newer).await;
    let error = refused(&address).await;
    assert!(matches!(error, StoreError::Newer { found: 3, supported: SCHEMA_VERSION, .. }), "{error:?}");
}

#[tokio::test]
async fn tables_of_another_program_are_left_alone() {
    let Some(url) = place::server("tables_of_others") else { return };
    for table in ["sessions (x int)", "migrations (x int)", "anything (x int)"] {
        let address = place::fresh(&url);
        let schema = address.schema();
        sql(&url, &format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.{table}")).await;
        let error = refused(&address).await;
        assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
        assert!(error.to_string().contains("another program"), "{error}");
        sql(&url, &format!("DROP TABLE {schema}.{}", table.split(' ').next().unwrap())).await;
        // Nothing was added to it.
        sql(&url, &format!("DROP SCHEMA {schema}")).await;
    }
}

/// What programs print may hold a U+0000, and no text of the database can.
#[tokio::test]
async fn every_text_comes_back_with_its_nuls() {
    let Some(url) = place::server("nuls") else { return };
    let store = open(&place::fresh(&url)).await;
    let planted = Planted::new(&store, "root").await;
    let odd = "a\0b\u{10FFFF}c";
    let mut data = planted.root.clone();
    (data.title, data.cwd, data.model) = (Some(odd.into()), Some(odd.into()), Some(odd.into()));
    data.metadata.insert(odd.to_owned(), odd.to_owned());
    let mut ended = run(&data.id, "r", offspring_protocol::RunState::Running);
    (ended.error, ended.process) = (Some(odd.into()), Some(odd.into()));
    let said = line(&data.id, 1, odd);
    planted
        .write(vec![
            Write::Update(std::sync::Arc::new(data.clone())),
            Write::Run(Box::new(ended.clone())),
            Write::Append(said.clone()),
        ])
        .await
        .unwrap();
    let found = store.session(data.id.clone()).await.unwrap().unwrap();
    assert_eq!(format!("{:?}", found.data), format!("{data:?}"));
    assert_eq!(found.last_run, Some(ended));
    assert_eq!(log(&store, &data.id).await, [said]);
}

#[tokio::test]
async fn a_tree_says_how_much_it_is_and_less_when_it_is_deleted() {
    let Some(url) = place::server("how_much") else { return };
    let store = open(&place::fresh(&url)).await;
    let planted = Planted::new(&store, "root").await;
    let text = "x".repeat(50_000);
    planted.spawn("child", 1).await.unwrap();
    let small = store.tree_size(id("root")).await.unwrap();
    planted.write(vec![Write::Append(line(&id("child"), 4, &text))]).await.unwrap();
    let big = store.tree_size(id("root")).await.unwrap();
    assert_eq!((small.sessions, big.sessions), (2, 2));
    assert!(big.bytes >= small.bytes + 50_000 && small.bytes < 5_000, "{small:?} {big:?}");
    assert_eq!(store.space().await.unwrap().used_bytes, big.bytes);
    planted.write(vec![Write::Delete(id("child"))]).await.unwrap();
    assert!(store.tree_size(id("root")).await.unwrap().bytes < small.bytes);
    let reclaimed = store.reclaim().await.unwrap();
    assert!(reclaimed.left.is_some() && reclaimed.after.file_bytes > 0, "{reclaimed:?}");
    planted.write(vec![Write::Delete(id("root"))]).await.unwrap();
    assert_eq!(store.space().await.unwrap().used_bytes, 0);
}
