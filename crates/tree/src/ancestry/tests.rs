use super::*;

fn id(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

fn path(ancestry: &mut Ancestry, id: &str) -> String {
    ancestry.path(id).iter().map(SessionId::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn t1_ids_are_compared_by_bytes_and_nothing_is_read_out_of_them() {
    let mut ancestry = Ancestry::default();
    for odd in ["a/b", "A/B", "a", "a ", "\0", "é", "e\u{301}", "ses_2", "ses_1"] {
        assert_eq!(ancestry.start(" ", odd), Ok(EdgeChange::New));
    }
    assert_eq!(ancestry.len(), 10);
    assert_eq!(ancestry.parent("a/b"), Some(&id(" ")));
    // Longer than any store takes, and still attributed.
    let long = "x".repeat(1_000_000);
    assert_eq!(ancestry.start(&long, "child"), Ok(EdgeChange::New));
    assert_eq!(ancestry.path("child"), [id(&long), id("child")]);
}

#[test]
fn t2_an_invalid_start_records_nothing_and_is_counted() {
    let mut ancestry = Ancestry::default();
    assert_eq!(ancestry.start("", "c"), Err(InvalidStart::EmptyParent));
    assert_eq!(ancestry.start("p", ""), Err(InvalidStart::EmptyChild));
    assert_eq!(ancestry.start("", ""), Err(InvalidStart::EmptyParent));
    assert_eq!(ancestry.start("p", "p"), Err(InvalidStart::OwnParent));
    assert!(ancestry.is_empty());
    assert_eq!(ancestry.diagnostics(), Diagnostics { invalid_starts: 4, ..Diagnostics::default() });
    // Nor does it take a recorded edge away.
    ancestry.start("p", "c").unwrap();
    ancestry.start("", "c").unwrap_err();
    ancestry.start("c", "c").unwrap_err();
    assert_eq!(ancestry.parent("c"), Some(&id("p")));
    assert!(!ancestry.is_empty());
}

#[test]
fn t3_the_latest_valid_start_wins() {
    let mut ancestry = Ancestry::default();
    assert_eq!(ancestry.start("p", "c"), Ok(EdgeChange::New));
    assert_eq!(ancestry.start("p", "c"), Ok(EdgeChange::Same));
    assert_eq!(ancestry.start("q", "c"), Ok(EdgeChange::Moved { from: id("p") }));
    assert_eq!(ancestry.start("p", "c"), Ok(EdgeChange::Moved { from: id("q") }));
    assert_eq!(ancestry.start("c", "d"), Ok(EdgeChange::New));
    assert_eq!(path(&mut ancestry, "d"), "p c d");
    let diagnostics = Diagnostics { invalid_starts: 0, repeated_starts: 1, moves: 2 };
    assert_eq!((ancestry.diagnostics(), ancestry.len()), (diagnostics, 4));
}

#[test]
fn t7_a_walk_on_a_cycle_visits_each_session_once_and_ends() {
    let mut ancestry = Ancestry::default();
    ancestry.start("a", "b").unwrap();
    ancestry.start("b", "a").unwrap();
    ancestry.start("b", "c").unwrap();
    assert_eq!(path(&mut ancestry, "a"), "b a");
    assert_eq!(path(&mut ancestry, "b"), "a b");
    assert_eq!(path(&mut ancestry, "c"), "a b c");
}

#[test]
fn t8_edges_are_cleared_only_for_a_new_process() {
    let mut ancestry = Ancestry::default();
    ancestry.start("r", "a").unwrap();
    ancestry.start("", "a").unwrap_err();
    assert_eq!(path(&mut ancestry, "a"), "r a");
    ancestry.clear();
    assert!(ancestry.is_empty());
    assert_eq!((path(&mut ancestry, "a"), ancestry.parent("a")), ("a".into(), None));
    assert_eq!(ancestry.diagnostics().invalid_starts, 1);
    assert_eq!(ancestry.start("s", "a"), Ok(EdgeChange::New));
    assert_eq!(path(&mut ancestry, "a"), "s a");
}

#[test]
fn t14_the_path_is_there_for_whoever_comes_late_and_stops_before_the_first_repeat() {
    let mut ancestry = Ancestry::default();
    ancestry.start("r", "a").unwrap();
    ancestry.start("a", "b").unwrap();
    assert_eq!(path(&mut ancestry, "b"), "r a b");
    assert_eq!(path(&mut ancestry, "r"), "r");
    assert_eq!(path(&mut ancestry, "never seen"), "never seen");
    assert_eq!(path(&mut ancestry, ""), "");
    assert_eq!((ancestry.parent("r"), ancestry.parent("never seen")), (None, None));
    ancestry.start("b", "r").unwrap();
    assert_eq!(path(&mut ancestry, "b"), "r a b");
    assert_eq!(path(&mut ancestry, "r"), "a b r");
}

#[test]
fn a_session_costs_what_its_documentation_says() {
    assert_eq!(size_of::<Node>(), 32);
    assert_eq!(size_of::<(SessionId, u32)>(), 24);
}
