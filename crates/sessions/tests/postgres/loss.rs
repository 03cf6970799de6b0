//! The connection goes, the server goes and comes back: what was acknowledged is there, once.

use std::{sync::atomic::Ordering, time::Duration};

use offspring_sessions::store::{
    SessionStore, StoreError, Write,
    postgres::{PostgresAddress, PostgresOptions, PostgresStore},
};
use tokio::{sync::watch, time::Instant};

use crate::{
    BOUND, open, own_server, place,
    planted::{Planted, SPAWN_LINES, check_tree, id, line, log},
    proxy,
    server::Stop,
};

/// The server's address by way of a port.
fn by_way_of(url: &str, port: u16) -> (String, u16) {
    let (before, after) = url.rsplit_once(':').unwrap();
    let (to, database) = after.split_once('/').unwrap();
    (format!("{before}:{port}/{database}"), to.parse().unwrap())
}

#[tokio::test]
async fn l16_a_commit_whose_answer_was_lost_is_there_once() {
    let Some(url) = place::server("l16_answer_lost") else { return };
    let (_, to) = by_way_of(&url, 0);
    let (port, losses) = proxy::start(to).await;
    let address = place::fresh(&by_way_of(&url, port).0);
    let store = open(&address).await;
    let planted = Planted::new(&store, "root").await;
    let mut seq = 1;
    for round in 0..12_u64 {
        let lost = if round % 2 == 0 { &losses.answers } else { &losses.requests };
        // Sometimes the second attempt is lost too.
        lost.store(1 + usize::from(round % 3 == 0), Ordering::SeqCst);
        planted.spawn(&format!("child {round}"), seq).await.unwrap();
        seq += SPAWN_LINES;
        assert_eq!(lost.swap(0, Ordering::SeqCst), usize::from(round % 6 == 0), "nothing was lost");
        assert_eq!(check_tree(&store, &planted.root.id).await.len() as u64, round + 1);
    }
    // A batch without a line of the log has no number that would give it away.
    losses.answers.store(1, Ordering::SeqCst);
    planted.write(vec![Write::Delete(id("child 3"))]).await.unwrap();
    assert!(store.session(id("child 3")).await.unwrap().is_none());
    losses.answers.store(1, Ordering::SeqCst);
    let refused = planted.write(vec![Write::Append(line(&planted.root.id, 1, "old"))]).await;
    assert!(matches!(refused, Err(StoreError::NotNext { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn l16_l18_a_server_that_restarts_during_commits_loses_nothing_acknowledged() {
    const TREES: usize = 4;
    let Some(mut server) = own_server("l16_restart") else { return };
    let address = place::fresh(&server.url());
    let store = open(&address).await;
    let (end, ended) = watch::channel(false);
    let write = async |tree: usize| {
        let planted = Planted::new(&store, &format!("root {tree}")).await;
        let mut acknowledged = Vec::new();
        while !*ended.borrow() {
            let name = format!("{tree} {}", acknowledged.len());
            planted.spawn(&name, 1 + acknowledged.len() as u64 * SPAWN_LINES).await.unwrap();
            acknowledged.push(name);
        }
        acknowledged
    };
    let restarts = async {
        for round in 0..6 {
            let how = if round % 2 == 0 { Stop::Fast } else { Stop::Immediate };
            let mut changes = store.changes();
            for _ in 0..20 {
                changes.changed().await.unwrap();
            }
            server = tokio::task::spawn_blocking(move || {
                server.stop(how).unwrap();
                server.begin().unwrap();
                server
            })
            .await
            .unwrap();
        }
        end.send(true).unwrap();
        // Kept until the writers have ended: dropped, it stops.
        server
    };
    let (told, _server) = tokio::time::timeout(
        2 * BOUND,
        futures_util::future::join(futures_util::future::join_all((0..TREES).map(write)), restarts),
    )
    .await
    .unwrap();
    for (tree, acknowledged) in told.into_iter().enumerate() {
        assert!(acknowledged.len() > 6, "it did nothing between the restarts");
        assert_eq!(check_tree(&store, &id(&format!("root {tree}"))).await, acknowledged);
    }
}

#[tokio::test]
async fn a_server_that_stays_away_is_a_bounded_wait_and_an_error_that_says_so() {
    let Some(mut server) = own_server("stays_away") else { return };
    let address: PostgresAddress = server.url().parse().unwrap();
    let options = PostgresOptions { patience: Duration::from_secs(1), ..PostgresOptions::default() };
    let store = PostgresStore::open(&address, options).await.unwrap();
    let planted = Planted::new(&store, "root").await;
    server.stop(Stop::Immediate).unwrap();
    let started = Instant::now();
    let refused = planted.write(vec![Write::Append(line(&planted.root.id, 1, "x"))]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unreachable { .. } | StoreError::Undecided { .. }), "{refused:?}");
    let read = store.session(id("root")).await.unwrap_err();
    assert!(matches!(read, StoreError::Unreachable { .. }), "{read:?}");
    assert!(started.elapsed() < BOUND);
    let opened = PostgresStore::open(&address, options).await.unwrap_err();
    assert!(matches!(opened, StoreError::Unreachable { .. }), "{opened:?}");
    for error in [refused, read, opened] {
        let said = format!("{error} {error:?}");
        let secret = server.url().split(['/', ':', '@']).nth(4).unwrap().to_owned();
        assert!(secret.len() > 10 && !said.contains(&secret), "{said}");
    }
    server.begin().unwrap();
    // The same handle goes on where it was.
    let written = log(&store, &planted.root.id).await.len() as u64;
    planted.write(vec![Write::Append(line(&planted.root.id, written + 1, "y"))]).await.unwrap();
}

#[tokio::test]
async fn a_commit_that_was_let_go_of_leaves_no_transaction_behind() {
    let Some(url) = place::server("let_go") else { return };
    let address = place::fresh(&url);
    let options = PostgresOptions { connections: 1, ..PostgresOptions::default() };
    let store = PostgresStore::open(&address, options).await.unwrap();
    let planted = Planted::new(&store, "root").await;
    let mut seq = 0;
    for number in 0..40_u64 {
        let commit = planted.write(vec![Write::Append(line(&planted.root.id, seq + 1, "x"))]);
        // From before it began to after its end.
        let _ = tokio::time::timeout(Duration::from_micros(number * 100), commit).await;
        // Finished all the same, whoever asked: a later one comes behind it on the only connection.
        planted.write(Vec::new()).await.unwrap();
        seq = log(&store, &planted.root.id).await.len() as u64;
    }
    assert!(seq > 0);
}
