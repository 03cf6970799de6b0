//! Random histories: any store and the one in memory answer the same.

use std::sync::Arc;

use offspring_protocol::{NodeName, Origin, Outcome, RunState, SessionId};
use offspring_sessions::{
    MemoryStore,
    store::{
        Batch, CommandKind, CommandRow, Committed, EventQuery, Fence, SessionQuery, SessionStore, StoreError,
        TreeQuery, Write,
    },
};
use proptest::prelude::*;

use crate::planted::{child, id, line, root, run};

/// Trees and sessions of a history; small, so that they meet.
const TREES: u8 = 2;
const SESSIONS: u8 = 6;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Root,
    Origin { session: u8, version: u8 },
    Child { session: u8, parent: u8 },
    Update { session: u8, title: u8 },
    Run { session: u8, run: u8, state: u8 },
    Append { session: u8, ahead: u8, run: u8 },
    Command { session: u8, command: u8, answered: bool },
    Delete { session: u8 },
    DeleteRoot,
}

fn step() -> impl Strategy<Value = Step> {
    let session = 0..SESSIONS;
    prop_oneof![
        3 => Just(Step::Root),
        2 => (session.clone(), 0..3_u8).prop_map(|(session, version)| Step::Origin { session, version }),
        6 => (session.clone(), session.clone()).prop_map(|(session, parent)| Step::Child { session, parent }),
        2 => (session.clone(), 0..4_u8).prop_map(|(session, title)| Step::Update { session, title }),
        4 => (session.clone(), 0..3_u8, 0..6_u8).prop_map(|(session, run, state)| Step::Run { session, run, state }),
        8 => (session.clone(), prop_oneof![9 => Just(1_u8), 1 => 0..3_u8], 0..4_u8)
            .prop_map(|(session, ahead, run)| Step::Append { session, ahead, run }),
        2 => (session.clone(), 0..4_u8, any::<bool>())
            .prop_map(|(session, command, answered)| Step::Command { session, command, answered }),
        2 => session.prop_map(|session| Step::Delete { session }),
        1 => Just(Step::DeleteRoot),
    ]
}

fn origin(version: u8, rerun_of: Option<SessionId>) -> Origin {
    Origin {
        manifest: String::new(),
        manifest_path: None,
        node: NodeName::new("node").unwrap(),
        prompt: String::new(),
        cwd: None,
        program_version: version.to_string(),
        rerun_of,
    }
}

/// Batches: the tree, whether the fence is old, and the steps.
pub(crate) type History = Vec<(u8, bool, Vec<Step>)>;

pub(crate) fn history() -> impl Strategy<Value = History> {
    let batch = (0..TREES, prop::bool::weighted(0.05), prop::collection::vec(step(), 1..5));
    prop::collection::vec(batch, 1..25)
}

/// Ids of one history, apart from those of all others in the same store.
pub(crate) struct Names(pub(crate) u64);

impl Names {
    fn root(&self, tree: u8) -> SessionId {
        id(&format!("{}-root-{tree}", self.0))
    }

    /// Session 0 is the root. The others have the same names in both trees, so that trees meet.
    fn session(&self, tree: u8, session: u8) -> SessionId {
        if session == 0 { self.root(tree) } else { id(&format!("{}-{session}", self.0)) }
    }

    fn write(&self, tree: u8, step: &Step, seq: &mut u64) -> Write {
        let root_row = root(self.root(tree).as_str());
        let at = |session: u8| self.session(tree, session);
        match *step {
            Step::Root => Write::Session(Arc::new(root_row)),
            Step::Origin { session, version } => {
                let origin = Arc::new(origin(version, (version > 0).then(|| at(version))));
                Write::Origin { root: at(session), origin }
            }
            Step::Child { session, parent } => {
                let mut data = child(&root_row, at(session.max(1)).as_str());
                data.parent_id = Some(at(parent));
                Write::Session(Arc::new(data))
            }
            Step::Update { session, title } => {
                let mut data = child(&root_row, at(session).as_str());
                data.title = (title > 0).then(|| title.to_string());
                Write::Update(Arc::new(data))
            }
            Step::Run { session, run: name, state } => {
                let ends = [Outcome::Completed, Outcome::Failed, Outcome::Cancelled, Outcome::Interrupted];
                let state = match state {
                    0 => RunState::Pending,
                    1 => RunState::Running,
                    end => RunState::Ended(ends[usize::from(end - 2)]),
                };
                Write::Run(Box::new(run(&at(session), &name.to_string(), state)))
            }
            Step::Append { session, ahead, run } => {
                *seq += u64::from(ahead);
                let mut line = line(&at(session), *seq, &seq.to_string());
                line.run = (run > 0).then(|| offspring_protocol::RunId::new((run - 1).to_string()).unwrap());
                Write::Append(line)
            }
            Step::Command { session, command, answered } => Write::Command(CommandRow {
                id: format!("{}-{command}", self.0),
                root: self.root(tree),
                session: at(session),
                kind: CommandKind::Cancel,
                asked_at: offspring_protocol::Timestamp(command.into()),
                answer: answered.then(|| command.to_string()),
            }),
            Step::Delete { session } => Write::Delete(at(session)),
            Step::DeleteRoot => Write::Delete(self.root(tree)),
        }
    }

    /// All that can be read of this history, as text.
    async fn state(&self, store: &dyn SessionStore) -> Vec<String> {
        let mut seen = Vec::new();
        for tree in 0..TREES {
            let root = self.root(tree);
            let trees = store.trees(TreeQuery::Root(root.clone())).await.unwrap();
            seen.extend(trees.iter().map(|tree| format!("{tree:?}").replace(store.owner().as_str(), "us")));
            let all = EventQuery { root: root.clone(), session: None, after: 0, limit: usize::MAX };
            seen.push(format!("{:?}", store.events(all.clone()).await.unwrap()));
            let mut below: Vec<String> = Vec::new();
            for record in store.sessions(SessionQuery::Subtree(root.clone())).await.unwrap() {
                below.push(format!("{record:?}"));
            }
            below.sort();
            seen.extend(below);
            seen.push(format!("{:?}", store.open_commands(root.clone()).await.unwrap()));
            for session in 0..SESSIONS {
                let id = self.session(tree, session);
                seen.push(format!("{:?}", store.session(id.clone()).await.unwrap()));
                seen.push(format!("{:?}", store.origin(id.clone()).await.unwrap()));
                seen.push(format!("{:?}", store.runs(id.clone()).await.unwrap()));
                seen.push(format!("{:?}", store.sessions(SessionQuery::Children(id.clone())).await.unwrap()));
                let one = EventQuery { session: Some(id), after: 1, limit: 3, ..all.clone() };
                seen.push(format!("{:?}", store.events(one).await.unwrap()));
            }
        }
        seen.push(format!(
            "{:?}",
            store.sessions(SessionQuery::Prefix(format!("{}-", self.0))).await.unwrap()
        ));
        seen
    }
}

/// Both stores' answer to one batch, with their own owners' names out of it.
fn told(answer: &Result<Committed, StoreError>, store: &dyn SessionStore) -> String {
    format!("{answer:?}").replace(store.owner().as_str(), "us")
}

pub(crate) async fn compare(tried: &dyn SessionStore, names: &Names, history: &History) {
    let memory = MemoryStore::new();
    for (tree, stale, steps) in history {
        let present = memory.trees(TreeQuery::Root(names.root(*tree))).await.unwrap();
        let mut seq = present.first().map_or(0, |tree| tree.last_seq);
        let writes: Vec<Write> = steps.iter().map(|step| names.write(*tree, step, &mut seq)).collect();
        let mut answers = Vec::new();
        for store in [&memory as &dyn SessionStore, tried] {
            let epoch = if *stale { 9 } else { 1 };
            let fence = Fence { root: names.root(*tree), owner: store.owner(), epoch };
            let batch = Batch { fence: Some(fence), writes: writes.clone(), ..Batch::default() };
            answers.push(told(&store.commit(batch).await, store));
        }
        assert_eq!(answers[0], answers[1], "memory, then the other, on {steps:?}");
    }
    assert_eq!(names.state(&memory).await, names.state(tried).await);
}
