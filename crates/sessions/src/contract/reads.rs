//! Reading where nothing is.

use super::{
    Fixture,
    plant::{id, ids, log, row, tree},
};
use crate::store::{SessionQuery, TreeQuery};

pub(super) async fn an_empty_store_finds_nothing(fixture: Fixture) {
    let (store, nobody) = (&fixture.store, id("nobody"));
    assert!(row(store, &nobody).await.is_none());
    assert!(tree(store, &nobody).await.is_none());
    assert!(log(store, &nobody).await.is_empty());
    assert!(store.runs(nobody.clone()).await.unwrap().is_empty());
    assert!(store.origin(nobody.clone()).await.unwrap().is_none());
    assert!(store.trees(TreeQuery::Open).await.unwrap().is_empty());
    assert!(store.open_commands(nobody.clone()).await.unwrap().is_empty());
    assert!(store.command("nobody".into()).await.unwrap().is_none());
    for query in [
        SessionQuery::Roots { limit: usize::MAX },
        SessionQuery::Children(nobody.clone()),
        SessionQuery::Subtree(nobody),
        SessionQuery::Prefix(String::new()),
    ] {
        assert!(ids(store, query).await.is_empty());
    }
    assert!(!store.info().kind.is_empty());
}
