//! What a root was started with.

use std::sync::Arc;

use offspring_protocol::{NodeName, Origin};

use super::{
    Fixture,
    plant::{Planted, id, ids, row},
};
use crate::store::{Batch, SessionQuery, StoreError, Write};

/// An origin with every field set, to values that are easy to lose.
fn full() -> Origin {
    Origin {
        manifest: "agents:\r\n\ta: # é\u{0}\u{2028}\n\n".to_owned(),
        manifest_path: Some("/tmp/a b\n/pool.yaml".to_owned()),
        node: NodeName::new("näme 'with' \"quotes\"").unwrap(),
        prompt: "\n what? \u{0}\u{202e}\n".to_owned(),
        cwd: Some(String::new()),
        program_version: "0.1.0-rc.1+x".to_owned(),
        rerun_of: Some(id("nobody stored this")),
    }
}

fn write(root: &offspring_protocol::SessionId, origin: Origin) -> Write {
    Write::Origin { root: root.clone(), origin: Arc::new(origin) }
}

pub(super) async fn every_field_of_an_origin_survives(fixture: Fixture) {
    let store = &fixture.store;
    let planted = Planted::new(store, "root").await;
    let root = &planted.root.id;
    assert_eq!(store.origin(root.clone()).await.unwrap(), None);
    // Each optional field away on its own; a later one takes the place of the one before.
    type Strip = fn(&mut Origin);
    let strips: &[Strip] = &[
        |_| {},
        |origin| origin.manifest_path = None,
        |origin| origin.cwd = None,
        |origin| origin.rerun_of = None,
        |origin| origin.prompt.clear(),
        |origin| origin.prompt = "x".repeat(1 << 20),
    ];
    for strip in strips {
        let mut origin = full();
        strip(&mut origin);
        planted.write(vec![write(root, origin.clone())]).await.unwrap();
        assert_eq!(store.origin(root.clone()).await.unwrap().as_ref(), Some(&origin));
    }
    let other = Planted::new(store, "other").await;
    assert_eq!(store.origin(other.root.id).await.unwrap(), None);
}

pub(super) async fn a_root_and_its_origin_are_one_batch(fixture: Fixture) {
    let store = &fixture.store;
    let data = super::plant::root("root");
    let fence = crate::store::Fence { root: data.id.clone(), owner: store.owner(), epoch: 1 };
    let planted = Planted { store: Arc::clone(store), fence, root: data.clone() };
    let session = || Write::Session(Arc::new(data.clone()));
    // Before its row it is about nothing, and then there is no row either.
    let early = planted.write(vec![write(&data.id, full()), session()]).await;
    assert!(matches!(early, Err(StoreError::Unknown { .. })), "{early:?}");
    assert!(row(store, &data.id).await.is_none());
    planted.write(vec![session(), write(&data.id, full())]).await.unwrap();
    assert_eq!(store.origin(data.id.clone()).await.unwrap(), Some(full()));
}

pub(super) async fn an_origin_is_that_of_a_root_of_the_own_tree(fixture: Fixture) {
    let store = &fixture.store;
    let planted = Planted::new(store, "root").await;
    let child = planted.child(&planted.root, "child").await;
    let other = Planted::new(store, "other").await;
    for about in [&child.id, &id("nobody")] {
        let refused = planted.write(vec![write(about, full())]).await;
        assert!(matches!(&refused, Err(StoreError::Unknown { id }) if id == about), "{refused:?}");
        assert_eq!(store.origin(about.clone()).await.unwrap(), None);
    }
    let refused = planted.write(vec![write(&other.root.id, full())]).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    let unfenced = Batch { fence: None, ..planted.batch(vec![write(&planted.root.id, full())]) };
    let refused = store.commit(unfenced).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    let bad = [
        Origin { node: NodeName::new("a\0").unwrap(), ..full() },
        Origin { rerun_of: Some(id(&"x".repeat(513))), ..full() },
    ];
    for origin in bad {
        let refused = planted.write(vec![write(&planted.root.id, origin)]).await;
        assert!(matches!(refused, Err(StoreError::BadId(_))), "{refused:?}");
    }
    for root in [planted.root.id, other.root.id] {
        assert_eq!(store.origin(root).await.unwrap(), None);
    }
}

pub(super) async fn an_origin_goes_with_its_tree(fixture: Fixture) {
    let store = &fixture.store;
    let planted = Planted::new(store, "root").await;
    let kept = Planted::new(store, "kept").await;
    for planted in [&planted, &kept] {
        planted.write(vec![write(&planted.root.id, full())]).await.unwrap();
    }
    let child = planted.child(&planted.root, "child").await;
    planted.write(vec![Write::Delete(child.id)]).await.unwrap();
    assert_eq!(store.origin(planted.root.id.clone()).await.unwrap(), Some(full()));
    planted.write(vec![Write::Delete(planted.root.id.clone())]).await.unwrap();
    assert_eq!(store.origin(planted.root.id.clone()).await.unwrap(), None);
    // Who gets the same id, or the same key, gets nothing of it.
    let again = Planted::new(store, "root").await;
    assert_eq!(store.origin(again.root.id.clone()).await.unwrap(), None);
    assert!(row(store, &again.root.id).await.unwrap().rerun_of.is_none());
    assert_eq!(store.origin(kept.root.id.clone()).await.unwrap(), Some(full()));
    kept.write(vec![Write::Delete(kept.root.id.clone())]).await.unwrap();
    assert_eq!(store.origin(kept.root.id).await.unwrap(), None);
}

pub(super) async fn a_root_says_which_one_it_repeats_in_every_query(fixture: Fixture) {
    let store = &fixture.store;
    let first = Planted::new(store, "a first").await;
    let again = Planted::new(store, "a again").await;
    again.child(&again.root, "a child").await;
    let origin = Origin { rerun_of: Some(first.root.id.clone()), ..full() };
    again.write(vec![write(&again.root.id, origin)]).await.unwrap();
    let said = row(store, &again.root.id).await.unwrap().rerun_of;
    assert_eq!(said, Some(first.root.id.clone()));
    let root = again.root.id.clone();
    let queries = [
        SessionQuery::Roots { limit: 9 },
        SessionQuery::Subtree(root.clone()),
        SessionQuery::Prefix("a ".into()),
    ];
    for query in queries {
        for record in store.sessions(query.clone()).await.unwrap() {
            let expected = (record.data.id == root).then(|| first.root.id.clone());
            assert_eq!(record.rerun_of, expected, "{} in {query:?}", record.data.id);
        }
    }
    // The one that is repeated may go; its name stays.
    first.write(vec![Write::Delete(first.root.id.clone())]).await.unwrap();
    assert_eq!(row(store, &root).await.unwrap().rerun_of, Some(first.root.id));
    assert_eq!(ids(store, SessionQuery::Roots { limit: 9 }).await, [root.as_str()]);
}
