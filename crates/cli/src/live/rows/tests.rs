//! Rows of made-up trees.

use offspring_protocol::{AgentType, NodeName};

use super::*;

fn tree(names: &[(&str, Option<usize>, RunState, &str)]) -> Tree {
    let mut tree = Tree::default();
    for (place, (name, parent, state, last)) in names.iter().enumerate() {
        let id = |place: usize| SessionId::new(format!("ses_{place}")).unwrap();
        let info = SessionInfo {
            id: id(place),
            root: id(0),
            parent: parent.map(id),
            path: [id(place)].into(),
            depth: u32::from(parent.is_some()),
            agent_name: NodeName::new(*name).unwrap(),
            agent_type: AgentType::Native,
            source_type: None,
        };
        let place = tree.add(&Arc::new(info), ids::now());
        tree.rows[place].state = *state;
        tree.rows[place].took = Some(Duration::from_millis(4_200));
        tree.rows[place].last = (*last).to_owned();
    }
    tree
}

fn shown(tree: &mut Tree, height: usize, columns: usize) -> Vec<String> {
    let rows = tree.lines(height, columns);
    let rows: Vec<String> = rows.iter().map(|row| row.render(false, plain)).collect();
    assert!(rows.len() <= height, "{rows:#?}");
    for row in &rows {
        assert!(width(row) <= columns, "{row:?} in {columns}");
    }
    rows
}

const DONE: RunState = RunState::Ended(Outcome::Completed);

#[test]
fn a_row_says_state_and_time_before_anything_else() {
    let mut tree = tree(&[
        ("lead", None, RunState::Running, "reading"),
        ("日本語の名前はとても長い", Some(0), RunState::Running, "出力"),
        ("a", Some(1), RunState::Pending, ""),
        ("b", Some(1), DONE, "👩\u{200d}💻 done"),
    ]);
    assert_eq!(
        shown(&mut tree, 10, 79),
        [
            "▶ lead running 4.2 s  reading",
            "└─ ▶ 日本語の名前はとても長い running 4.2 s  出力",
            "   ├─ … a pending",
            "   └─ ✓ b completed 4.2 s  👩 done",
        ]
    );
    assert_eq!(
        shown(&mut tree, 10, 32),
        [
            "▶ lead running 4.2 s  reading",
            "└─ ▶ 日本語の名前… running 4.2 s",
            "   ├─ … a pending",
            "   └─ ✓ b completed 4.2 s  👩 d…",
        ]
    );
    for columns in 1..80 {
        shown(&mut tree, 10, columns);
    }
}

#[test]
fn what_is_at_work_stays_and_the_rest_is_counted() {
    let mut names = vec![("root", None, RunState::Running, "")];
    names.extend([("done", Some(0), DONE, ""); 6]);
    names.push(("bad", Some(0), RunState::Ended(Outcome::Failed), ""));
    names.extend([("waits", Some(0), RunState::Pending, ""); 3]);
    names.push(("works", Some(0), RunState::Running, ""));
    let mut tree = tree(&names);
    assert_eq!(
        shown(&mut tree, 5, 60),
        [
            "▶ root running 4.2 s",
            "├─ ✗ bad failed 4.2 s",
            "├─ … waits pending",
            "└─ ▶ works running 4.2 s",
            "… and 8 more: 2 pending, 6 completed",
        ]
    );
    assert_eq!(shown(&mut tree, 2, 30), ["▶ root running 4.2 s", "… and 11 more: 1 running, 1 f…"]);
    assert_eq!(shown(&mut tree, 12, 60).len(), 12);
    assert_eq!(shown(&mut tree, 1, 60), ["… and 12 more: 2 running, 1 failed, 3 pending, 6 completed"]);
}

#[test]
fn a_deep_branch_leaves_room_for_its_session() {
    let mut names = vec![("root", None, RunState::Running, "")];
    names.extend((0..12).map(|above| ("below", Some(above), RunState::Running, "")));
    let mut tree = tree(&names);
    let rows = shown(&mut tree, 20, 39);
    assert_eq!(rows[12], "…          └─ ▶ below running 4.2 s");
}
