use super::*;

fn id(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

fn words<'a>(ids: impl IntoIterator<Item = &'a SessionId>) -> String {
    ids.into_iter().map(SessionId::as_str).collect::<Vec<_>>().join(" ")
}

/// `child<parent` pairs, or a root alone, separated by spaces.
fn tree(text: &str) -> SessionTree {
    let mut tree = SessionTree::default();
    for entry in text.split(' ') {
        let (child, parent) = match entry.split_once('<') {
            Some((child, parent)) => (child, Some(id(parent))),
            None => (entry, None),
        };
        tree.insert(id(child), parent.as_ref()).unwrap();
    }
    tree
}

#[test]
fn l4_depth_is_the_number_of_parent_edges() {
    let mut tree = SessionTree::default();
    assert_eq!(tree.insert(id("r"), None), Ok(Inserted { depth: 0, parent_known: true }));
    assert_eq!(tree.insert(id("a"), Some(&id("r"))), Ok(Inserted { depth: 1, parent_known: true }));
    assert_eq!(tree.insert(id("b"), Some(&id("a"))), Ok(Inserted { depth: 2, parent_known: true }));
    assert_eq!(["r", "a", "b", "x"].map(|s| tree.depth(&id(s))), [Some(0), Some(1), Some(2), None]);
}

#[test]
fn l3_a_child_of_an_unknown_parent_is_the_root_of_its_own_tree_with_depth_1() {
    let mut tree = SessionTree::default();
    assert_eq!(tree.insert(id("c"), Some(&id("gone"))), Ok(Inserted { depth: 1, parent_known: false }));
    assert_eq!(tree.insert(id("d"), Some(&id("c"))), Ok(Inserted { depth: 2, parent_known: true }));
    assert_eq!(tree.root(&id("d")), Some(&id("c")));
    assert_eq!(tree.path(&id("d")), Some(vec![id("c"), id("d")]));
    assert_eq!((tree.parent(&id("c")), tree.parent_as_given(&id("c"))), (None, Some(&id("gone"))));
    assert_eq!(tree.parent_as_given(&id("d")), Some(&id("c")));
    assert!(!tree.contains(&id("gone")));
    // The parent is set once: a session that takes the missing id later is somebody else.
    tree.insert(id("gone"), None).unwrap();
    assert_eq!(tree.parent(&id("c")), None);
    assert_eq!(words(tree.children(&id("gone"))), "");
    // Nothing of it is left behind for the next session of that id.
    tree.remove_subtree(&id("c"));
    tree.insert(id("c"), None).unwrap();
    assert_eq!(tree.parent_as_given(&id("c")), None);
}

#[test]
fn a_taken_id_is_refused_with_its_root_and_changes_nothing() {
    let mut tree = tree("r a<r b<a s");
    for parent in [None, Some(id("s")), Some(id("b"))] {
        let taken = Err(InsertError::Taken { id: id("b"), root: id("r") });
        assert_eq!(tree.insert(id("b"), parent.as_ref()), taken);
    }
    assert_eq!(tree.insert(id("x"), Some(&id("x"))), Err(InsertError::OwnParent { id: id("x") }));
    assert_eq!(words(tree.roots()), "r s");
    assert_eq!(words(tree.descendants(&id("r"))), "a b");
    assert_eq!(tree.len(), 4);
}

#[test]
fn t14_the_path_goes_from_the_root_to_the_session() {
    let tree = tree("r a<r b<a c<b");
    assert_eq!(words(&tree.path(&id("c")).unwrap()), "r a b c");
    assert_eq!(words(&tree.path(&id("r")).unwrap()), "r");
    assert_eq!(tree.path(&id("x")), None);
    assert_eq!(words(tree.ancestors(&id("c"))), "b a r");
    assert_eq!(words(tree.ancestors(&id("r"))), "");
    assert_eq!(words(tree.ancestors(&id("x"))), "");
    assert_eq!(["r", "a", "x"].map(|s| tree.parent(&id(s)).cloned()), [None, Some(id("r")), None]);
}

#[test]
fn o1_an_event_of_a_grandchild_has_the_whole_path_and_its_depth() {
    let tree = tree("other r a<r b<a");
    assert_eq!(tree.root(&id("b")), Some(&id("r")));
    assert_eq!(tree.root(&id("other")), Some(&id("other")));
    assert!(tree.contains(&id("b")) && !tree.contains(&id("x")));
    assert_eq!(tree.path(&id("b")), Some(vec![id("r"), id("a"), id("b")]));
    assert_eq!(tree.depth(&id("b")), Some(2));
}

#[test]
fn children_roots_and_descendants_keep_the_order_of_insertion() {
    let tree = tree("r b<r a<r z a1<a b1<b b2<b a2<a");
    assert_eq!(words(tree.children(&id("r"))), "b a");
    assert_eq!(words(tree.roots()), "r z");
    assert_eq!(words(tree.descendants(&id("r"))), "b b1 b2 a a1 a2");
    assert_eq!(words(tree.descendants(&id("b"))), "b1 b2");
    assert_eq!(words(tree.descendants(&id("a2"))), "");
    assert_eq!(words(tree.descendants(&id("x"))), "");
    assert_eq!(words(tree.children(&id("x"))), "");
}

#[test]
fn l14_leaves_come_before_their_parents_and_the_session_itself_last() {
    let tree = tree("r b<r a<r a1<a b1<b b2<b a2<a z");
    assert_eq!(words(&tree.leaves_first(&id("r"))), "b1 b2 b a1 a2 a r");
    assert_eq!(words(&tree.leaves_first(&id("a2"))), "a2");
    assert_eq!(words(&tree.leaves_first(&id("x"))), "");
}

#[test]
fn is_within_takes_the_session_itself_and_all_below() {
    let tree = tree("r a<r b<a s");
    let within = |session, top| tree.is_within(&id(session), &id(top));
    assert!(within("b", "r") && within("b", "a") && within("b", "b"));
    assert!(!within("a", "b") && !within("b", "s") && !within("x", "r") && !within("r", "x"));
    assert!(!within("x", "x"));
}

#[test]
fn a_removed_subtree_is_given_back_leaves_first_and_its_slots_are_used_again() {
    let mut tree = tree("r a<r b<r c<r b1<b b2<b");
    assert_eq!(words(&tree.remove_subtree(&id("b"))), "b1 b2 b");
    assert_eq!(words(tree.descendants(&id("r"))), "a c");
    assert_eq!(words(&tree.remove_subtree(&id("c"))), "c");
    assert_eq!(words(&tree.remove_subtree(&id("c"))), "");
    assert_eq!((tree.len(), tree.contains(&id("b1")), tree.nodes.len()), (2, false, 6));
    for (child, parent) in [("d", "r"), ("e", "d"), ("b", "a"), ("f", "r")] {
        tree.insert(id(child), Some(&id(parent))).unwrap();
    }
    assert_eq!(tree.nodes.len(), 6);
    assert_eq!(words(tree.descendants(&id("r"))), "a b d e f");
    assert_eq!(words(&tree.remove_subtree(&id("a"))), "b a");
    assert_eq!(words(tree.children(&id("r"))), "d f");
    assert!(!tree.is_empty());
    assert_eq!(words(&tree.remove_subtree(&id("r"))), "e d f r");
    assert!(tree.is_empty() && tree.roots().next().is_none());
    tree.insert(id("s"), None).unwrap();
    assert_eq!(words(tree.roots()), "s");
}

#[test]
fn a_removed_root_leaves_its_siblings_in_order() {
    let mut tree = tree("r s t u");
    tree.remove_subtree(&id("s"));
    assert_eq!(words(tree.roots()), "r t u");
    tree.remove_subtree(&id("u"));
    tree.remove_subtree(&id("r"));
    assert_eq!(words(tree.roots()), "t");
    tree.insert(id("v"), None).unwrap();
    assert_eq!(words(tree.roots()), "t v");
}

#[test]
fn a_node_costs_what_its_documentation_says() {
    assert_eq!(size_of::<Node>(), 40);
    assert_eq!(size_of::<(SessionId, u32)>(), 24);
}

#[test]
fn a_chain_of_100_000_sessions_needs_no_stack() {
    let mut tree = SessionTree::default();
    let mut parent = None;
    for n in 0..100_000 {
        let session = id(&n.to_string());
        tree.insert(session.clone(), parent.as_ref()).unwrap();
        parent = Some(session);
    }
    assert_eq!(tree.depth(&id("99999")), Some(99_999));
    assert_eq!(tree.descendants(&id("0")).count(), 99_999);
    assert_eq!(tree.leaves_first(&id("0")).first(), Some(&id("99999")));
    assert_eq!(tree.remove_subtree(&id("1")).len(), 99_999);
}
