use offspring_protocol::AgentType;

use super::*;

fn caller() -> Arc<SessionInfo> {
    let id = SessionId::new("caller").unwrap();
    Arc::new(SessionInfo {
        root: id.clone(),
        parent: None,
        path: Arc::from([id.clone()]),
        depth: 0,
        agent_name: "a".parse().unwrap(),
        agent_type: AgentType::Native,
        source_type: None,
        id,
    })
}

fn ended(tasks: &Tasks, n: usize, output_bytes: usize) -> TaskKey {
    let key = TaskKey::new(format!("task{n}")).unwrap();
    let open = tasks.open(key.clone(), &caller());
    let result = TaskResult {
        state: RunState::Ended(Outcome::Completed),
        output: "x".repeat(output_bytes),
        error: None,
        ..lost(open.task())
    };
    open.end(result);
    key
}

#[test]
fn ended_tasks_are_remembered_up_to_a_number() {
    let tasks = Tasks::default();
    let keys: Vec<TaskKey> = (0..=MAX_ENDED).map(|n| ended(&tasks, n, 0)).collect();
    let known = |key: &TaskKey| tasks.status(key, &caller().id).is_ok();
    assert!(!known(&keys[0]), "the oldest goes first");
    assert!(keys[1..].iter().all(known));
}

#[test]
fn ended_tasks_are_remembered_up_to_so_many_bytes_and_the_newest_always() {
    let tasks = Tasks::default();
    let known = |key: &TaskKey| tasks.status(key, &caller().id).is_ok();
    let quarter = MAX_ENDED_BYTES / 4;
    let keys: Vec<TaskKey> = (0..4).map(|n| ended(&tasks, n, quarter)).collect();
    assert!(keys.iter().all(known), "they just fit");
    let fifth = ended(&tasks, 4, quarter);
    assert!(!known(&keys[0]) && known(&keys[1]) && known(&fifth));
    let great = ended(&tasks, 5, MAX_ENDED_BYTES + 1);
    assert!(known(&great) && !known(&fifth));
    let small = ended(&tasks, 6, 1);
    assert!(!known(&great) && known(&small));
}

#[test]
fn l19_a_task_holds_its_tree_until_it_has_ended_or_is_lost() {
    let tasks = Tasks::default();
    let root = caller().root.clone();
    let open = |n: usize| tasks.open(TaskKey::new(format!("task{n}")).unwrap(), &caller());
    let (first, second, third) = (open(1), open(2), open(3));
    first.forget();
    second.end(lost(third.task()));
    assert!(tasks.any_open(&root) && !tasks.any_open(&SessionId::new("other").unwrap()));
    let key = third.task().key().clone();
    drop(third);
    assert!(!tasks.any_open(&root));
    let lost = tasks.status(&key, &caller().id).unwrap();
    assert_eq!(lost.state, RunState::Ended(Outcome::Interrupted));
}
