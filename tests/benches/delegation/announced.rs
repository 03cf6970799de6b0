//! What a subscriber heard of a tree, and whether the store says the same.
//!
//! One child is a row and a run, and eight lines: its spawn among the lines of its parent, then run started,
//! status running, two deltas, message, complete, status idle among its own.

use std::{collections::HashMap, sync::Arc};

use offspring_protocol::{Envelope, Event, Outcome, RunState, SessionId, event::SpawnSessionStart};
use offspring_sessions::{
    SessionManager, SessionStore, Subscription,
    store::{EventQuery, LogRow, SessionQuery},
};
use tokio::sync::mpsc;

use crate::{Failed, node::LINES_PER_CHILD};

/// The lines of a child's own session, in order.
const OWN_LINES: [&str; LINES_PER_CHILD - 1] = [
    "run_started",
    "status_changed",
    "thinking_delta",
    "text_delta",
    "message_complete",
    "stream_complete",
    "status_changed",
];

/// A root without children has so many lines: the same but for the deltas.
const ROOT_LINES: usize = OWN_LINES.len() - 2;

/// Everything that was announced of one tree.
pub(crate) struct Announced(Vec<Arc<Envelope>>);

/// Hears every envelope of a manager and hands over each tree when its root has ended.
pub(crate) struct Listener(mpsc::Receiver<Result<Announced, String>>);

impl Listener {
    pub(crate) fn new(mut heard: Subscription) -> Self {
        let (ended, trees) = mpsc::channel(16);
        tokio::spawn(async move {
            let mut open: HashMap<SessionId, Vec<Arc<Envelope>>> = HashMap::new();
            loop {
                let envelopes = match heard.recv_many().await {
                    Ok(Some(envelopes)) => envelopes,
                    Ok(None) => return,
                    Err(lagged) => {
                        let _ = ended.send(Err(lagged.to_string())).await;
                        return;
                    }
                };
                for envelope in envelopes {
                    let last = envelope.session.depth == 0 && is_end(&envelope);
                    let root = envelope.session.root.clone();
                    open.entry(root.clone()).or_default().push(envelope);
                    if last && let Some(tree) = open.remove(&root) {
                        let _ = ended.send(Ok(Announced(tree))).await;
                    }
                }
            }
        });
        Self(trees)
    }

    /// The next tree whose root ended.
    pub(crate) async fn next(&mut self) -> Result<Announced, Failed> {
        Ok(self.0.recv().await.ok_or("the bus was closed before a tree ended")??)
    }
}

/// The last line of a session's run.
fn is_end(envelope: &Envelope) -> bool {
    envelope.event.kind() == "status_changed" && envelope.event.data().get().contains("outcome")
}

impl Announced {
    /// Compares with the store. Gives the number of children.
    pub(crate) async fn check(&self, manager: &SessionManager, children: usize) -> Result<(), String> {
        let root = self.0.first().ok_or("nothing was announced")?.session.root.clone();
        let store = manager.store();
        self.check_lines(&**store, &root).await.map_err(|why| format!("tree {root}: {why}"))?;
        self.check_rows(&**store, &root, children).await.map_err(|why| format!("tree {root}: {why}"))
    }

    async fn check_lines(&self, store: &dyn SessionStore, root: &SessionId) -> Result<(), String> {
        // A store ends a page where it likes: an empty one is the end.
        let mut stored = Vec::new();
        loop {
            let after = stored.last().map_or(0, |line: &LogRow| line.seq);
            let query = EventQuery { root: root.clone(), session: None, after, limit: usize::MAX };
            let page = store.events(query).await.map_err(|error| error.to_string())?;
            if page.is_empty() {
                break;
            }
            stored.extend(page);
        }
        if stored.len() != self.0.len() {
            return Err(format!("{} lines were announced and {} are stored", self.0.len(), stored.len()));
        }
        for ((place, announced), stored) in (1..).zip(&self.0).zip(&stored) {
            if announced.seq != place {
                return Err(format!("line {place} was announced with the number {}", announced.seq));
            }
            if !same(announced, stored) {
                return Err(format!(
                    "line {place} was announced as {announced:?} and is stored as {stored:?}"
                ));
            }
        }
        Ok(())
    }

    async fn check_rows(
        &self,
        store: &dyn SessionStore,
        root: &SessionId,
        children: usize,
    ) -> Result<(), String> {
        let said = |error: offspring_sessions::StoreError| error.to_string();
        let rows = store.sessions(SessionQuery::Subtree(root.clone())).await.map_err(said)?;
        let spawns = self.spawns()?;
        if spawns.len() != children || rows.len() != children + 1 {
            let (spawns, rows) = (spawns.len(), rows.len());
            return Err(format!(
                "{children} children were asked for, {spawns} announced, {rows} rows are stored"
            ));
        }
        let lines = LINES_PER_CHILD * children + ROOT_LINES;
        let deep = spawns.iter().any(|spawn| spawn.depth > 1);
        if !deep && self.0.len() != lines {
            return Err(format!("{lines} lines were expected and {} announced", self.0.len()));
        }
        let mut own: HashMap<&SessionId, Vec<&Envelope>> = HashMap::new();
        for envelope in self.0.iter().filter(|envelope| envelope.event.kind() != "spawn_session_start") {
            own.entry(&envelope.session.id).or_default().push(envelope);
        }
        if !deep
            && rows
                .iter()
                .skip(1)
                .map(|row| &row.data.id)
                .ne(spawns.iter().map(|spawn| &spawn.child_session_id))
        {
            return Err("the rows are not in the order of the spawns".to_owned());
        }
        let rows: HashMap<&SessionId, _> = rows.iter().map(|row| (&row.data.id, row)).collect();
        for spawn in &spawns {
            let id = &spawn.child_session_id;
            let row = rows.get(id).ok_or_else(|| format!("{id} was announced and has no row"))?;
            let data = &row.data;
            if data.parent_id.as_ref() != Some(&spawn.parent_session_id)
                || data.depth != spawn.depth
                || data.agent_name != spawn.source_name
            {
                return Err(format!("{id} was announced as {spawn:?} and is stored as {data:?}"));
            }
            if spawn.source_type != offspring_protocol::SourceType::Agent {
                continue;
            }
            let own = own.get(id).map(Vec::as_slice).unwrap_or_default();
            let kinds: Vec<&str> = own.iter().map(|envelope| envelope.event.kind()).collect();
            if kinds != OWN_LINES {
                return Err(format!("the lines of {id} are {kinds:?}"));
            }
            let run = row.last_run.as_ref().ok_or_else(|| format!("{id} has no run"))?;
            if run.state != RunState::Ended(Outcome::Completed) || own[0].run.as_ref() != Some(&run.id) {
                return Err(format!("the run of {id} is stored as {run:?}"));
            }
            let runs = store.runs(id.clone()).await.map_err(said)?.len();
            if runs != 1 {
                return Err(format!("{id} has {runs} runs"));
            }
        }
        Ok(())
    }

    fn spawns(&self) -> Result<Vec<SpawnSessionStart>, String> {
        let spawns = self.0.iter().filter(|envelope| envelope.event.kind() == "spawn_session_start");
        spawns
            .map(|envelope| match envelope.event.parse() {
                Ok(Event::SpawnSessionStart(spawn)) => Ok(spawn),
                other => Err(format!("a spawn reads as {other:?}")),
            })
            .collect()
    }
}

fn same(announced: &Envelope, stored: &LogRow) -> bool {
    announced.seq == stored.seq
        && announced.session.id == stored.session
        && announced.run == stored.run
        && announced.at == stored.at
        && announced.late == stored.late
        && announced.event == stored.event
}
