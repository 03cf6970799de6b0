//! Parents, children, roots, and what goes when one is deleted.

use std::sync::Arc;

use offspring_protocol::{Outcome, RunState, SessionData};

use super::{
    Fixture,
    plant::{Planted, assert_same, child, id, ids, line, root, row, run, tree},
};
use crate::store::{SessionQuery, StoreError, TreeQuery, Write};

pub(super) async fn l3_a_root_keeps_a_parent_that_is_not_stored(fixture: Fixture) {
    let orphan = SessionData { parent_id: Some(id("gone")), depth: 1, ..root("orphan") };
    let planted = Planted::with_root(&fixture.store, orphan.clone()).await;
    assert_same(&row(&fixture.store, &orphan.id).await.unwrap().data, &orphan);
    assert_eq!(tree(&fixture.store, &orphan.id).await.unwrap().fence, planted.fence);
    // It is a root, so it can be found and deleted, also when its parent comes after all.
    let parent = Planted::new(&fixture.store, "gone").await;
    assert_eq!(ids(&fixture.store, SessionQuery::Roots { limit: 9 }).await, ["gone", "orphan"]);
    assert!(ids(&fixture.store, SessionQuery::Children(parent.root.id.clone())).await.is_empty());
    assert_eq!(ids(&fixture.store, SessionQuery::Subtree(parent.root.id.clone())).await, ["gone"]);
    // Another tree's owner must not take it along.
    parent.write(vec![Write::Delete(parent.root.id.clone())]).await.unwrap();
    assert_same(&row(&fixture.store, &orphan.id).await.unwrap().data, &orphan);
    planted.write(vec![Write::Delete(orphan.id.clone())]).await.unwrap();
    assert!(row(&fixture.store, &orphan.id).await.is_none());
}

pub(super) async fn l3_a_child_needs_a_parent_of_its_own_tree(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let other = Planted::new(&fixture.store, "other").await;
    let base = child(&planted.root, "child");
    for parent_id in [Some(id("nobody")), Some(other.root.id.clone()), None] {
        let refused =
            planted.write(vec![Write::Session(Arc::new(SessionData { parent_id, ..base.clone() }))]).await;
        assert!(matches!(refused, Err(StoreError::Unknown { .. })), "{refused:?}");
    }
    assert!(row(&fixture.store, &base.id).await.is_none());
    // A child before its root.
    let fence = crate::store::Fence { root: id("new"), ..planted.fence.clone() };
    let early = Planted { fence, root: root("new"), ..planted };
    let refused = early.write(vec![Write::Session(Arc::new(child(&early.root, "early")))]).await;
    assert!(matches!(refused, Err(StoreError::Unknown { .. })), "{refused:?}");
}

pub(super) async fn children_come_in_the_order_they_were_created(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    // Neither their names nor their times say in which order.
    for (number, name) in ["m", "z", "a", "k"].iter().enumerate() {
        let mut data = child(&planted.root, name);
        data.created_at.0 = 100 - i64::try_from(number).unwrap();
        planted.session(&data).await;
        planted.child(&data, &format!("{name} below")).await;
    }
    assert_eq!(ids(&fixture.store, SessionQuery::Children(planted.root.id)).await, ["m", "z", "a", "k"]);
}

pub(super) async fn a_subtree_has_parents_before_children_and_siblings_in_order(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let other = Planted::new(&fixture.store, "other").await;
    other.child(&other.root, "elsewhere").await;
    let b = planted.child(&planted.root, "b").await;
    let a = planted.child(&planted.root, "a").await;
    let deep = planted.child(&a, "deep").await;
    planted.child(&b, "later").await;
    planted.child(&deep, "deepest").await;
    planted.child(&a, "aa").await;
    let all = ids(&fixture.store, SessionQuery::Subtree(planted.root.id.clone())).await;
    let place = |name: &str| all.iter().position(|id| id == name).unwrap();
    for (first, second) in [
        ("root", "a"),
        ("root", "b"),
        ("b", "a"),
        ("a", "deep"),
        ("deep", "deepest"),
        ("b", "later"),
        ("deep", "aa"),
    ] {
        assert!(place(first) < place(second), "{first} after {second}: {all:?}");
    }
    assert_eq!(all.len(), 7);
    let mut part = ids(&fixture.store, SessionQuery::Subtree(a.id)).await;
    assert_eq!(part.first().unwrap(), "a");
    part.sort();
    assert_eq!(part, ["a", "aa", "deep", "deepest"]);
}

pub(super) async fn roots_come_newest_first(fixture: Fixture) {
    for name in ["b", "c", "a"] {
        let planted = Planted::new(&fixture.store, name).await;
        planted.child(&planted.root, &format!("{name} child")).await;
    }
    assert_eq!(ids(&fixture.store, SessionQuery::Roots { limit: usize::MAX }).await, ["a", "c", "b"]);
    assert_eq!(ids(&fixture.store, SessionQuery::Roots { limit: 2 }).await, ["a", "c"]);
    assert!(ids(&fixture.store, SessionQuery::Roots { limit: 0 }).await.is_empty());
}

pub(super) async fn a_prefix_finds_at_most_20_roots_first(fixture: Fixture) {
    let first = Planted::new(&fixture.store, "x-first").await;
    for number in 0..30 {
        first.child(&first.root, &format!("ses_{number:02}")).await;
    }
    let root = Planted::new(&fixture.store, "ses_root").await;
    let found = ids(&fixture.store, SessionQuery::Prefix("ses_".into())).await;
    assert_eq!(found.len(), 20);
    assert_eq!(found[0], root.root.id.as_str());
    assert_eq!(found[1], "ses_00");
    assert_eq!(ids(&fixture.store, SessionQuery::Prefix("ses_2".into())).await.len(), 10);
    assert_eq!(ids(&fixture.store, SessionQuery::Prefix("ses_29".into())).await, ["ses_29"]);
    assert!(ids(&fixture.store, SessionQuery::Prefix("ses_290".into())).await.is_empty());
    assert_eq!(ids(&fixture.store, SessionQuery::Prefix(String::new())).await.len(), 20);
}

pub(super) async fn t1_a_prefix_is_no_pattern(fixture: Fixture) {
    for name in ["a%c", "abc", "a_c", "a*c", "a?c", "ABC", "a\u{10FFFF}", "é", "e\u{301}"] {
        Planted::new(&fixture.store, name).await;
    }
    for (prefix, expected) in [("a%", "a%c"), ("a_", "a_c"), ("a*", "a*c"), ("a?", "a?c"), ("ab", "abc")] {
        assert_eq!(ids(&fixture.store, SessionQuery::Prefix(prefix.into())).await, [expected]);
    }
    assert_eq!(ids(&fixture.store, SessionQuery::Prefix("a\u{10FFFF}".into())).await, ["a\u{10FFFF}"]);
    assert_eq!(ids(&fixture.store, SessionQuery::Prefix("e".into())).await, ["e\u{301}"]);
    assert_eq!(ids(&fixture.store, SessionQuery::Prefix("a".into())).await.len(), 6);
}

pub(super) async fn open_trees_are_those_with_a_run_that_has_not_ended(fixture: Fixture) {
    let a = Planted::new(&fixture.store, "a").await;
    let b = Planted::new(&fixture.store, "b").await;
    Planted::new(&fixture.store, "c").await;
    let open = async || {
        let found = fixture.store.trees(TreeQuery::Open).await.unwrap();
        let mut found: Vec<_> =
            found.iter().map(|tree| (tree.fence.root.to_string(), tree.open_runs)).collect();
        found.sort();
        found
    };
    assert_eq!(open().await, []);
    let child = a.child(&a.root, "child").await;
    a.run(run(&a.root.id, "r", RunState::Running)).await;
    a.run(run(&child.id, "r", RunState::Pending)).await;
    a.run(run(&child.id, "s", RunState::Running)).await;
    b.run(run(&b.root.id, "r", RunState::Pending)).await;
    assert_eq!(open().await, [("a".to_owned(), 3), ("b".to_owned(), 1)]);
    assert_eq!(a.tree().await.fence, a.fence);
    a.run(run(&child.id, "r", RunState::Running)).await;
    a.run(run(&a.root.id, "r", RunState::Ended(Outcome::Completed))).await;
    b.run(run(&b.root.id, "r", RunState::Ended(Outcome::Cancelled))).await;
    assert_eq!(open().await, [("a".to_owned(), 2)]);
    a.write(vec![Write::Delete(child.id.clone())]).await.unwrap();
    assert_eq!(open().await, []);
    assert!(fixture.store.trees(TreeQuery::Root(child.id)).await.unwrap().is_empty());
}

pub(super) async fn deleting_a_session_takes_everything_below_with_it(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let gone = planted.child(&planted.root, "gone").await;
    let below = planted.child(&gone, "below").await;
    let kept = planted.child(&planted.root, "kept").await;
    for (seq, session) in (1..).zip([&gone.id, &below.id, &kept.id, &planted.root.id]) {
        planted.run(run(session, "r", RunState::Running)).await;
        planted.append(line(session, seq)).await;
    }
    planted.write(vec![Write::Delete(gone.id.clone())]).await.unwrap();
    for id in [&gone.id, &below.id] {
        assert!(row(&fixture.store, id).await.is_none());
        assert!(fixture.store.runs(id.clone()).await.unwrap().is_empty());
    }
    assert_eq!(ids(&fixture.store, SessionQuery::Subtree(planted.root.id.clone())).await, ["root", "kept"]);
    assert_eq!(ids(&fixture.store, SessionQuery::Children(planted.root.id.clone())).await, ["kept"]);
    assert_eq!(planted.log().await, [line(&kept.id, 3), line(&planted.root.id, 4)]);
    // Numbers are not used again (rule L16), ids are.
    let tree = planted.tree().await;
    assert_eq!((tree.last_seq, tree.open_runs), (4, 2));
    planted.child(&planted.root, "gone").await;
    assert!(fixture.store.runs(gone.id.clone()).await.unwrap().is_empty());
    assert!(row(&fixture.store, &gone.id).await.unwrap().last_run.is_none());
    planted.append(line(&gone.id, 5)).await;
    assert_eq!(ids(&fixture.store, SessionQuery::Children(planted.root.id)).await, ["kept", "gone"]);
}

pub(super) async fn deleting_a_root_takes_the_tree_and_frees_its_ids(fixture: Fixture) {
    let planted = Planted::new(&fixture.store, "root").await;
    let kept = Planted::new(&fixture.store, "kept").await;
    kept.append(line(&kept.root.id, 1)).await;
    let child = planted.child(&planted.root, "child").await;
    planted.run(run(&child.id, "r", RunState::Running)).await;
    planted.append(line(&child.id, 1)).await;
    planted.append(line(&child.id, 2)).await;
    let done = planted.write(vec![Write::Delete(planted.root.id.clone())]).await.unwrap();
    assert_eq!(done.last_seq, 0);
    assert!(tree(&fixture.store, &planted.root.id).await.is_none());
    assert!(planted.log().await.is_empty());
    assert_eq!(ids(&fixture.store, SessionQuery::Roots { limit: 9 }).await, ["kept"]);
    let again = Planted::new(&fixture.store, "root").await;
    assert_eq!(ids(&fixture.store, SessionQuery::Subtree(again.root.id.clone())).await, ["root"]);
    assert!(again.log().await.is_empty());
    again.append(line(&again.root.id, 1)).await;
    again.child(&again.root, "child").await;
    assert!(fixture.store.runs(child.id).await.unwrap().is_empty());
    assert_eq!(kept.log().await, [line(&kept.root.id, 1)]);
}
