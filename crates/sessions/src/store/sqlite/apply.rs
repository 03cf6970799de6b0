//! What a batch does to the tables.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use offspring_protocol::{Origin, OwnerId, RunId, RunRecord, SessionData, SessionId};
use rusqlite::{Connection, OptionalExtension, params, types::ToSqlOutput};

use super::{code, fault::Fault, kind, long};
use crate::store::{
    Batch, CommandRow, Committed, Fence, LogRow, StoreError, Write, check_origin, check_row, fence_root,
    wrong_fence,
};

type Map<K, V> = HashMap<K, V, RandomState>;

/// Entries of a cache of keys before it starts anew; at most some 10 MiB each.
const CACHED: usize = 1 << 16;

/// The keys of a session and its tree.
#[derive(Debug, Clone, Copy)]
struct Keys {
    key: i64,
    tree: i64,
}

/// A tree's row, ahead of the table by what this transaction did to it.
#[derive(Debug, Clone)]
struct Tree {
    key: i64,
    owner: OwnerId,
    epoch: u64,
    last_seq: u64,
    open_runs: i64,
    changed: bool,
}

#[derive(Debug, Clone, Copy)]
struct RunKey {
    n: i64,
    open: bool,
}

/// Applies batches inside the writer's transaction, and remembers keys it has looked up.
#[derive(Debug, Default)]
pub(super) struct Applier {
    sessions: Map<SessionId, Keys>,
    runs: Map<(i64, RunId), RunKey>,
    /// The n of a session's last run, 0 for none, where `runs` has every run of the session: then nothing
    /// needs to be asked for a new one.
    last_run: Map<i64, i64>,
    trees: Map<SessionId, Tree>,
    /// Trees whose rows must be written before the commit.
    changed: Vec<SessionId>,
    /// SQLite's mark of other connections' commits; what we remember is as old as this.
    data_version: i64,
    /// Whether something was deleted since the log file was last emptied.
    pub(super) deleted: bool,
}

impl Applier {
    /// Called inside each new transaction: forgets what another process may have changed. Says whether one
    /// has changed anything.
    pub(super) fn begin(&mut self, conn: &Connection) -> Result<bool, Fault> {
        let version = conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        let full = self.sessions.len() > CACHED || self.runs.len() > CACHED || self.trees.len() > CACHED;
        let changed = version != self.data_version;
        if changed || full {
            self.forget();
            self.data_version = version;
        }
        Ok(changed)
    }

    /// Forgets everything: the transaction was undone.
    pub(super) fn forget(&mut self) {
        self.forget_sessions();
        self.trees.clear();
        self.changed.clear();
    }

    fn forget_sessions(&mut self) {
        self.sessions.clear();
        self.runs.clear();
        self.last_run.clear();
    }

    /// Writes the trees' rows; once per transaction, not once per line.
    pub(super) fn finish(&mut self, conn: &Connection) -> Result<(), Fault> {
        for root in self.changed.drain(..) {
            let Some(tree) = self.trees.get_mut(&root).filter(|tree| tree.changed) else { continue };
            conn.prepare_cached("UPDATE trees SET last_seq = ?2, open_runs = ?3 WHERE key = ?1")?
                .execute((tree.key, tree.last_seq.cast_signed(), tree.open_runs))?;
            tree.changed = false;
        }
        Ok(())
    }

    /// Applies a whole batch; the caller undoes it in the tables when this fails.
    pub(super) fn apply(&mut self, conn: &Connection, batch: &Batch) -> Result<Committed, Fault> {
        let Some(fence) = &batch.fence else {
            self.writes(conn, batch, &mut None)?;
            return Ok(Committed { last_seq: 0 });
        };
        let before = self.tree(conn, &fence.root)?;
        if let Some(tree) = &before
            && (tree.owner != fence.owner || tree.epoch != fence.epoch)
        {
            return Err(wrong_fence(batch, fence, &tree.owner).into());
        }
        let mut tree = before.clone();
        let done = self.writes(conn, batch, &mut tree);
        let (kept, done) = match done {
            Ok(()) => {
                let last_seq = tree.as_ref().map_or(0, |tree| tree.last_seq);
                (tree, Ok(Committed { last_seq }))
            }
            Err(fault) => {
                self.forget_sessions();
                (before, Err(fault))
            }
        };
        match kept {
            Some(tree) => {
                if tree.changed {
                    self.changed.push(fence.root.clone());
                }
                self.trees.insert(fence.root.clone(), tree);
            }
            None => {
                self.trees.remove(&fence.root);
            }
        }
        done
    }

    /// Makes `owner` the owner of a tree whose epoch is still `from_epoch`.
    pub(super) fn claim(
        &mut self,
        conn: &Connection,
        root: &SessionId,
        from_epoch: u64,
        owner: &OwnerId,
    ) -> Result<Fence, Fault> {
        let mut tree = self.tree(conn, root)?.ok_or_else(|| StoreError::Unknown { id: root.clone() })?;
        if tree.epoch != from_epoch {
            return Err(StoreError::Fenced { root: root.clone() }.into());
        }
        tree.epoch = from_epoch.saturating_add(1);
        tree.owner = owner.clone();
        conn.prepare_cached("UPDATE trees SET owner = ?2, epoch = ?3 WHERE key = ?1")?.execute((
            tree.key,
            owner.as_str(),
            tree.epoch.cast_signed(),
        ))?;
        let fence = Fence { root: root.clone(), owner: owner.clone(), epoch: tree.epoch };
        self.trees.insert(root.clone(), tree);
        Ok(fence)
    }

    fn writes(&mut self, conn: &Connection, batch: &Batch, tree: &mut Option<Tree>) -> Result<(), Fault> {
        for write in &batch.writes {
            let fence = |id| fence_root(batch.fence.as_ref(), id);
            match write {
                Write::Session(data) => {
                    check_row(data)?;
                    fence(&data.id)?;
                    self.insert_session(conn, batch.fence.as_ref(), tree, data)?;
                }
                Write::Update(data) => {
                    check_row(data)?;
                    fence(&data.id)?;
                    let keys = self.own(conn, tree.as_ref(), &data.id)?;
                    update_session(conn, keys.key, data)?;
                }
                Write::Origin { root, origin } => {
                    check_origin(origin)?;
                    fence(root)?;
                    let keys = self.own(conn, tree.as_ref(), root)?;
                    if keys.key != keys.tree {
                        return Err(StoreError::Unknown { id: root.clone() }.into());
                    }
                    write_origin(conn, keys.key, origin)?;
                }
                Write::Run(run) => {
                    run.id.check_storable()?;
                    fence(&run.session_id)?;
                    let keys = self.own(conn, tree.as_ref(), &run.session_id)?;
                    let opened = self.write_run(conn, keys.key, run)?;
                    if let Some(tree) = tree.as_mut().filter(|_| opened != 0) {
                        tree.open_runs += opened;
                        tree.changed = true;
                    }
                }
                Write::Append(line) => {
                    let root = fence(&line.session)?;
                    let keys = self.own(conn, tree.as_ref(), &line.session)?;
                    self.append(conn, root, tree, keys.key, line)?;
                }
                Write::Skip { root, to } => {
                    fence(root)?;
                    self.own(conn, tree.as_ref(), root)?;
                    skip(root, tree, *to)?;
                }
                Write::Command(command) => self.write_command(conn, command)?,
                Write::Delete(id) => {
                    fence(id)?;
                    let keys = self.own(conn, tree.as_ref(), id)?;
                    self.delete(conn, tree, keys)?;
                }
            }
        }
        Ok(())
    }

    fn tree(&mut self, conn: &Connection, root: &SessionId) -> Result<Option<Tree>, Fault> {
        if let Some(tree) = self.trees.get(root) {
            return Ok(Some(tree.clone()));
        }
        let found = conn
            .prepare_cached(
                "SELECT t.key, t.owner, t.epoch, t.last_seq, t.open_runs FROM sessions s JOIN trees t ON t.key = s.key \
                 WHERE s.id = ?1",
            )?
            .query_row([root.as_str()], |row| {
                let owner: String = row.get(1)?;
                let numbers: (i64, i64) = (row.get(2)?, row.get(3)?);
                Ok((row.get(0)?, owner, numbers, row.get(4)?))
            })
            .optional()?;
        let Some((key, owner, (epoch, last_seq), open_runs)) = found else { return Ok(None) };
        let tree = Tree {
            key,
            owner: code::id(OwnerId::new(owner))?,
            epoch: epoch.cast_unsigned(),
            last_seq: last_seq.cast_unsigned(),
            open_runs,
            changed: false,
        };
        self.trees.insert(root.clone(), tree.clone());
        Ok(Some(tree))
    }

    fn keys(&mut self, conn: &Connection, id: &SessionId) -> Result<Option<Keys>, Fault> {
        if let Some(keys) = self.sessions.get(id) {
            return Ok(Some(*keys));
        }
        let found = conn
            .prepare_cached("SELECT key, coalesce(tree, key) FROM sessions WHERE id = ?1")?
            .query_row([id.as_str()], |row| Ok(Keys { key: row.get(0)?, tree: row.get(1)? }))
            .optional()?;
        if let Some(keys) = found {
            self.sessions.insert(id.clone(), keys);
        }
        Ok(found)
    }

    /// The keys of a session of the batch's own tree; its fence is for no other.
    fn own(&mut self, conn: &Connection, tree: Option<&Tree>, id: &SessionId) -> Result<Keys, Fault> {
        let keys = self.keys(conn, id)?.ok_or_else(|| StoreError::Unknown { id: id.clone() })?;
        if tree.is_some_and(|tree| tree.key == keys.tree) {
            return Ok(keys);
        }
        let root: String = conn
            .prepare_cached("SELECT id FROM sessions WHERE key = ?1")?
            .query_row([keys.tree], |row| row.get(0))?;
        Err(StoreError::Fenced { root: code::id(SessionId::new(root))? }.into())
    }

    /// Why a row cannot be made: that its id is taken comes before everything else.
    fn refuse(&mut self, conn: &Connection, id: &SessionId, otherwise: StoreError) -> Fault {
        match self.keys(conn, id) {
            Ok(None) => otherwise.into(),
            Ok(Some(keys)) => {
                let owner = conn
                    .prepare_cached("SELECT owner FROM trees WHERE key = ?1")
                    .and_then(|mut owner| owner.query_row([keys.tree], |row| row.get::<_, String>(0)));
                match owner.map_err(Fault::from).and_then(|owner| code::id(OwnerId::new(owner))) {
                    Ok(owner) => StoreError::Taken { id: id.clone(), owner }.into(),
                    Err(fault) => fault,
                }
            }
            Err(fault) => fault,
        }
    }

    fn insert_session(
        &mut self,
        conn: &Connection,
        fence: Option<&Fence>,
        tree: &mut Option<Tree>,
        data: &SessionData,
    ) -> Result<(), Fault> {
        let fence = fence.ok_or_else(|| StoreError::Fenced { root: data.root_id.clone() })?;
        if data.root_id != fence.root {
            return Err(self.refuse(conn, &data.id, StoreError::Fenced { root: data.root_id.clone() }));
        }
        let is_root = data.id == data.root_id;
        let (parent, tree_key) = if is_root {
            (None, None)
        } else {
            let Some(tree_key) = tree.as_ref().map(|tree| tree.key) else {
                return Err(self.refuse(conn, &data.id, StoreError::Unknown { id: data.root_id.clone() }));
            };
            let parent = data.parent_id.as_ref().unwrap_or(&data.root_id);
            match self.keys(conn, parent)? {
                Some(keys) if data.parent_id.is_some() && keys.tree == tree_key => {
                    (Some(keys.key), Some(tree_key))
                }
                _ => return Err(self.refuse(conn, &data.id, StoreError::Unknown { id: parent.clone() })),
            }
        };
        // A root's parent, if it names one, is in no tree of ours (rule L3).
        let parent_id = data.parent_id.as_ref().filter(|_| is_root);
        let limits = &data.limits;
        let external = data.external.as_ref();
        let inserted = conn
            .prepare_cached(
                "INSERT INTO sessions (id, parent, parent_id, tree, depth, project_id, cwd, agent_name, agent_type, source_type, \
                 pool_id, task, title, model, settings, max_depth, max_descendants, max_live_children, max_wall_ms, \
                 peer, external_id, created_at, last_active_at, metadata, version) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, \
                 ?21, ?22, ?23, ?24, ?25) ON CONFLICT (id) DO NOTHING",
            )?
            .execute(params![
                data.id.as_str(),
                parent,
                parent_id.map(SessionId::as_str),
                tree_key,
                data.depth,
                data.project_id.as_ref().map(|id| id.as_str()),
                data.cwd,
                data.agent_name.as_str(),
                data.agent_type.as_str(),
                data.source_type.as_ref().map(|word| word.as_str()),
                data.pool_id.as_ref().map(|id| id.as_str()),
                data.task.as_ref().map(|id| id.as_str()),
                data.title,
                data.model,
                data.settings.as_ref().map(|raw| raw.get()),
                limits.max_depth,
                limits.max_descendants,
                limits.max_live_children,
                limits.max_wall_ms.map(u64::cast_signed),
                external.map(|external| external.peer.as_str()),
                external.map(|external| external.id.as_str()),
                data.created_at.0,
                data.last_active_at.0,
                code::metadata(&data.metadata)?,
                data.version,
            ])?;
        if inserted == 0 {
            return Err(self.refuse(conn, &data.id, StoreError::Unknown { id: data.id.clone() }));
        }
        let key = conn.last_insert_rowid();
        self.sessions.insert(data.id.clone(), Keys { key, tree: tree_key.unwrap_or(key) });
        self.last_run.insert(key, 0);
        if is_root {
            conn.prepare_cached(
                "INSERT INTO trees (key, owner, epoch, last_seq, open_runs) VALUES (?1, ?2, ?3, 0, 0)",
            )?
            .execute((key, fence.owner.as_str(), fence.epoch.cast_signed()))?;
            *tree = Some(Tree {
                key,
                owner: fence.owner.clone(),
                epoch: fence.epoch,
                last_seq: 0,
                open_runs: 0,
                changed: false,
            });
        }
        Ok(())
    }

    fn run_key(&mut self, conn: &Connection, session: i64, id: &RunId) -> Result<Option<RunKey>, Fault> {
        let name = (session, id.clone());
        if let Some(run) = self.runs.get(&name) {
            return Ok(Some(*run));
        }
        if self.last_run.contains_key(&session) {
            return Ok(None);
        }
        // From the end: it is nearly always the last run that is asked for.
        let found = conn
            .prepare_cached(
                "SELECT n, state FROM runs WHERE session = ?1 AND id = ?2 ORDER BY n DESC LIMIT 1",
            )?
            .query_row((session, id.as_str()), |row| {
                Ok(RunKey { n: row.get(0)?, open: row.get::<_, i64>(1)? < code::FIRST_ENDED })
            })
            .optional()?;
        if let Some(run) = found {
            self.runs.insert(name, run);
        }
        Ok(found)
    }

    /// Gives by how much the number of open runs changed.
    fn write_run(&mut self, conn: &Connection, session: i64, run: &RunRecord) -> Result<i64, Fault> {
        let before = self.run_key(conn, session, &run.id)?;
        let n = match (before, self.last_run.get_mut(&session)) {
            (Some(before), _) => before.n,
            (None, Some(last)) => {
                *last += 1;
                *last
            }
            (None, None) => conn
                .prepare_cached("SELECT coalesce(max(n), 0) + 1 FROM runs WHERE session = ?1")?
                .query_row([session], |row| row.get(0))?,
        };
        let usage = &run.usage;
        conn.prepare_cached(
            "INSERT OR REPLACE INTO runs (session, n, id, ordinal, state, error, input_tokens, output_tokens, \
             cached_tokens, cost_micro_usd, messages, process, opened_at, ended_at, left_out_bytes) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?
        .execute(params![
            session,
            n,
            run.id.as_str(),
            run.ordinal,
            code::run_state(run.state),
            run.error,
            usage.input_tokens.cast_signed(),
            usage.output_tokens.cast_signed(),
            usage.cached_tokens.cast_signed(),
            usage.cost_micro_usd.map(u64::cast_signed),
            usage.messages.cast_signed(),
            run.process,
            run.opened_at.0,
            run.ended_at.map(|at| at.0),
            run.left_out_bytes.cast_signed(),
        ])?;
        let open = run.state.is_open();
        self.runs.insert((session, run.id.clone()), RunKey { n, open });
        Ok(i64::from(open) - i64::from(before.is_some_and(|before| before.open)))
    }

    fn append(
        &mut self,
        conn: &Connection,
        root: &SessionId,
        tree: &mut Option<Tree>,
        session: i64,
        line: &LogRow,
    ) -> Result<(), Fault> {
        let Some(tree) = tree.as_mut() else {
            return Err(StoreError::Unknown { id: line.session.clone() }.into());
        };
        let expected = tree.last_seq + 1;
        if line.seq != expected {
            return Err(StoreError::NotNext { root: root.clone(), expected, got: line.seq }.into());
        }
        let key = code::event_key(tree.key, line.seq)?;
        let run = match &line.run {
            None => code::text(None),
            Some(id) => {
                id.check_storable()?;
                match self.run_key(conn, session, id)? {
                    Some(run) => ToSqlOutput::from(run.n),
                    None => code::text(Some(id.as_str())),
                }
            }
        };
        let data = line.event.data().get();
        conn.prepare_cached(
            "INSERT INTO events (key, session, run, at, late, kind, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            key,
            session,
            run,
            line.at.0,
            line.late,
            kind::encode(line.event.kind()),
            long::place(data),
        ])?;
        long::fill(conn, "events", "data", key, data)?;
        tree.last_seq = line.seq;
        tree.changed = true;
        Ok(())
    }

    fn write_command(&mut self, conn: &Connection, command: &CommandRow) -> Result<(), Fault> {
        let root = self.keys(conn, &command.root)?;
        let root = root.ok_or_else(|| StoreError::Unknown { id: command.root.clone() })?;
        conn.prepare_cached(
            "INSERT OR REPLACE INTO commands (id, tree, session, kind, asked_at, answer) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            command.id,
            root.key,
            command.session.as_str(),
            code::to_json(&command.kind)?,
            command.asked_at.0,
            command.answer
        ])?;
        Ok(())
    }

    fn delete(&mut self, conn: &Connection, tree: &mut Option<Tree>, top: Keys) -> Result<(), Fault> {
        let gone: Vec<i64> = conn
            .prepare_cached(
                "WITH RECURSIVE below (key) AS (VALUES (?1) UNION ALL \
                 SELECT s.key FROM below JOIN sessions s ON s.parent = below.key) SELECT key FROM below",
            )?
            .query_map([top.key], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let last = tree.as_ref().map_or(0, |tree| tree.last_seq);
        let range = (code::event_key(top.tree, 0)?, code::event_key(top.tree, last)?);
        if top.key == top.tree {
            conn.prepare_cached("DELETE FROM events WHERE key BETWEEN ?1 AND ?2")?.execute(range)?;
        } else {
            conn.prepare_cached(
                "WITH RECURSIVE below (key) AS (VALUES (?3) UNION ALL \
                 SELECT s.key FROM below JOIN sessions s ON s.parent = below.key) \
                 DELETE FROM events WHERE key BETWEEN ?1 AND ?2 AND session IN (SELECT key FROM below)",
            )?
            .execute((range.0, range.1, top.key))?;
        }
        let mut open = 0;
        for key in &gone {
            let ended = code::FIRST_ENDED;
            open += conn
                .prepare_cached("SELECT count(*) FROM runs WHERE session = ?1 AND state < ?2")?
                .query_row((key, ended), |row| row.get::<_, i64>(0))?;
            conn.prepare_cached("DELETE FROM runs WHERE session = ?1")?.execute([key])?;
            conn.prepare_cached(
                "DELETE FROM commands WHERE tree = ?1 OR session = (SELECT id FROM sessions WHERE key = ?1)",
            )?
            .execute([key])?;
            conn.prepare_cached("DELETE FROM sessions WHERE key = ?1")?.execute([key])?;
        }
        if top.key == top.tree {
            conn.prepare_cached("DELETE FROM trees WHERE key = ?1")?.execute([top.key])?;
            conn.prepare_cached("DELETE FROM origins WHERE tree = ?1")?.execute([top.key])?;
            *tree = None;
        } else if let Some(tree) = tree {
            tree.open_runs -= open;
            tree.changed = true;
        }
        // A key may be used again.
        self.forget_sessions();
        self.deleted = true;
        Ok(())
    }
}

fn write_origin(conn: &Connection, tree: i64, origin: &Origin) -> Result<(), Fault> {
    conn.prepare_cached(
        "INSERT OR REPLACE INTO origins (tree, manifest, manifest_path, node, prompt, cwd, program_version, rerun_of) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        tree,
        origin.manifest,
        origin.manifest_path,
        origin.node.as_str(),
        long::place(&origin.prompt),
        origin.cwd,
        origin.program_version,
        origin.rerun_of.as_ref().map(SessionId::as_str),
    ])?;
    long::fill(conn, "origins", "prompt", tree, &origin.prompt)
}

/// Numbers that stay without a line.
fn skip(root: &SessionId, tree: &mut Option<Tree>, to: u64) -> Result<(), Fault> {
    let Some(tree) = tree.as_mut() else { return Err(StoreError::Unknown { id: root.clone() }.into()) };
    let expected = tree.last_seq + 1;
    if to < expected {
        return Err(StoreError::NotNext { root: root.clone(), expected, got: to }.into());
    }
    // Refuses what no line could have.
    code::event_key(tree.key, to)?;
    tree.last_seq = to;
    tree.changed = true;
    Ok(())
}

/// Everything but id, parent, root and depth.
fn update_session(conn: &Connection, key: i64, data: &SessionData) -> Result<(), Fault> {
    let limits = &data.limits;
    let external = data.external.as_ref();
    conn.prepare_cached(
        "UPDATE sessions SET project_id = ?2, cwd = ?3, agent_name = ?4, agent_type = ?5, source_type = ?6, \
         pool_id = ?7, task = ?8, title = ?9, model = ?10, settings = ?11, max_depth = ?12, max_descendants = ?13, \
         max_live_children = ?14, max_wall_ms = ?15, peer = ?16, external_id = ?17, created_at = ?18, \
         last_active_at = ?19, metadata = ?20, version = ?21 WHERE key = ?1",
    )?
    .execute(params![
        key,
        data.project_id.as_ref().map(|id| id.as_str()),
        data.cwd,
        data.agent_name.as_str(),
        data.agent_type.as_str(),
        data.source_type.as_ref().map(|word| word.as_str()),
        data.pool_id.as_ref().map(|id| id.as_str()),
        data.task.as_ref().map(|id| id.as_str()),
        data.title,
        data.model,
        data.settings.as_ref().map(|raw| raw.get()),
        limits.max_depth,
        limits.max_descendants,
        limits.max_live_children,
        limits.max_wall_ms.map(u64::cast_signed),
        external.map(|external| external.peer.as_str()),
        external.map(|external| external.id.as_str()),
        data.created_at.0,
        data.last_active_at.0,
        code::metadata(&data.metadata)?,
        data.version,
    ])?;
    Ok(())
}
