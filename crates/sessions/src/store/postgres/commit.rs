//! What a batch does to the tables, in two round trips: one that looks, behind the fence, and one that writes.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet, VecDeque},
};

use deadpool_postgres::{ClientWrapper, Object};
use foldhash::fast::RandomState;
use futures_util::future::try_join5;
use offspring_protocol::{Origin, OwnerId, RunId, RunRecord, SessionData, SessionId};
use tokio_postgres::types::ToSql;

use super::{
    columns,
    fault::Fault,
    lines::Lines,
    pipeline::{self, Sent},
    read::{get, id},
    text,
};
use crate::store::{
    Batch, CommandRow, Committed, Durability, Fence, LogRow, StoreError, Write, check_origin, check_row,
    fence_root, wrong_fence,
};

type Map<K, V> = HashMap<K, V, RandomState>;

/// What a row of `sessions` takes beside its texts, and a line of a log, about.
const SESSION_BYTES: i64 = 400;
const LINE_BYTES: i64 = 24;

/// Where a transaction stood when its `COMMIT` was sent.
#[derive(Debug)]
pub(super) struct InDoubt {
    /// The number of the transaction, which the server knows also after a restart. After a crash it gives those again
    /// whose transactions left no trace.
    pub(super) transaction: String,
    /// The answer, if it was committed.
    pub(super) committed: Committed,
}

/// The keys of a session and its tree, and the n of its last run, 0 for none.
#[derive(Debug, Clone, Copy)]
struct Keys {
    key: i64,
    tree: i64,
    last_run: i64,
}

#[derive(Debug, Clone, Copy)]
struct RunKey {
    n: i64,
    open: bool,
}

/// A tree's row, ahead of the table by what this batch did to it.
#[derive(Debug, Clone)]
struct Tree {
    key: i64,
    last_seq: u64,
    open_runs: i64,
    bytes: i64,
}

/// Commits the whole batch or nothing. `in_doubt` is set while nobody but the server knows which.
///
/// When this fails the connection may still be in a transaction.
pub(super) async fn commit(
    client: &Object,
    batch: &Batch,
    names: (&str, &OwnerId),
    in_doubt: &mut Option<InDoubt>,
) -> Result<Committed, Fault> {
    let (channel, owner) = names;
    let (mut writer, transaction) = Writer::begin(client, batch).await?;
    writer.writes().await?;
    writer.lines().await?;
    writer.tree_row().await?;
    let notified: HashSet<&SessionId, RandomState> = match &batch.fence {
        Some(fence) => HashSet::from_iter([&fence.root]),
        None => batch.writes.iter().filter_map(|write| asked_of(write)).collect(),
    };
    let notify = client.prepare_cached("SELECT pg_notify($1, $2)").await?;
    for root in notified {
        let (channel, payload) = (channel.to_owned(), format!("{owner} {root}"));
        let notify = notify.clone();
        writer.queue.push(Box::pin(async move { client.execute(&notify, &[&channel, &payload]).await }));
    }
    writer.queue.push(Box::pin(async move { client.batch_execute("COMMIT").await.map(|()| 0) }));
    let committed = Committed { last_seq: writer.tree.as_ref().map_or(0, |tree| tree.last_seq) };
    *in_doubt = Some(InDoubt { transaction, committed });
    let done = writer.flush().await;
    if !matches!(done, Err(Fault::Lost(_))) {
        *in_doubt = None;
    }
    done.map(|()| committed)
}

fn asked_of(write: &Write) -> Option<&SessionId> {
    match write {
        Write::Command(command) => Some(&command.root),
        _ => None,
    }
}

/// A transaction, and what is known of the rows it will meet.
struct Writer<'a> {
    client: &'a ClientWrapper,
    batch: &'a Batch,
    tree: Option<Tree>,
    sessions: Map<SessionId, Keys>,
    runs: Map<(i64, RunId), RunKey>,
    /// Keys for new rows.
    fresh: VecDeque<i64>,
    lines: Lines<'a>,
    /// What is to be sent, in order.
    queue: Vec<Sent<'a>>,
}

impl<'a> Writer<'a> {
    /// Begins the transaction, takes the tree behind its fence, and looks up what the batch names.
    async fn begin(client: &'a Object, batch: &'a Batch) -> Result<(Self, String), Fault> {
        // The lock is the one that the tree's row needs at the end in any case. A weaker one first (FOR SHARE) would
        // make a deadlock of two commits to one tree.
        const TREE: &str = "SELECT t.key, t.owner, t.epoch, t.last_seq, t.open_runs, t.bytes FROM trees t \
                            JOIN sessions s ON s.key = t.key WHERE s.id = $1 FOR NO KEY UPDATE OF t";
        const SESSIONS: &str = "SELECT s.id, s.key, coalesce(s.tree, s.key), coalesce((SELECT max(r.n) FROM runs r \
                                WHERE r.session = s.key), 0) FROM sessions s WHERE s.id = ANY ($1)";
        const RUNS: &str = "SELECT r.session, r.id, r.n, r.state IN ('pending', 'running') \
                            FROM unnest($1::text[], $2::text[]) AS w (session, run) \
                            JOIN sessions s ON s.id = w.session JOIN runs r ON r.session = s.key AND r.id = w.run";
        const FRESH: &str = "SELECT pg_current_xact_id()::text, \
                             ARRAY(SELECT nextval('session_keys') FROM generate_series(1, $1::bigint))";
        let begin = match batch.durability {
            Durability::Process => "BEGIN ISOLATION LEVEL READ COMMITTED",
            // Whatever the server does otherwise.
            Durability::Power => "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on",
        };
        let named = Named::of(batch);
        let root = batch.fence.as_ref().map(|fence| fence.root.as_str()).filter(|root| !root.contains('\0'));
        let statements = (
            client.prepare_cached(TREE).await?,
            client.prepare_cached(SESSIONS).await?,
            client.prepare_cached(RUNS).await?,
            client.prepare_cached(FRESH).await?,
        );
        let parameters: [&[&(dyn ToSql + Sync)]; 4] =
            [&[&root], &[&named.sessions], &[&named.runs_of, &named.runs], &[&named.new]];
        // Sent in this order; each statement sees what was committed before the lock was taken.
        let ((), trees, sessions, runs, fresh) = try_join5(
            client.batch_execute(begin),
            client.query_opt(&statements.0, parameters[0]),
            client.query(&statements.1, parameters[1]),
            client.query(&statements.2, parameters[2]),
            client.query_one(&statements.3, parameters[3]),
        )
        .await?;
        let mut writer = Self {
            client,
            batch,
            tree: None,
            sessions: Map::default(),
            runs: Map::default(),
            fresh: get::<Vec<i64>>(&fresh, 1)?.into(),
            lines: Lines::default(),
            queue: Vec::new(),
        };
        if let (Some(row), Some(fence)) = (trees, &batch.fence) {
            let (owner, epoch): (&str, i64) = (get(&row, 1)?, get(&row, 2)?);
            if owner != fence.owner.as_str() || epoch.cast_unsigned() != fence.epoch {
                return Err(wrong_fence(batch, fence, &id(OwnerId::new(owner))?).into());
            }
            writer.tree = Some(Tree {
                key: get(&row, 0)?,
                last_seq: get::<i64>(&row, 3)?.cast_unsigned(),
                open_runs: get(&row, 4)?,
                bytes: get(&row, 5)?,
            });
        }
        for row in &sessions {
            let keys = Keys { key: get(row, 1)?, tree: get(row, 2)?, last_run: get(row, 3)? };
            writer.sessions.insert(id(SessionId::new(get::<&str>(row, 0)?))?, keys);
        }
        for row in &runs {
            let name = (get(row, 0)?, id(RunId::new(get::<&str>(row, 1)?))?);
            writer.runs.insert(name, RunKey { n: get(row, 2)?, open: get(row, 3)? });
        }
        Ok((writer, get(&fresh, 0)?))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(pipeline::all(std::mem::take(&mut self.queue)).await?)
    }

    async fn writes(&mut self) -> Result<(), Fault> {
        let batch = self.batch;
        for write in &batch.writes {
            let fence = |id| fence_root(batch.fence.as_ref(), id);
            match write {
                Write::Session(data) => {
                    check_row(data)?;
                    fence(&data.id)?;
                    self.insert_session(data).await?;
                }
                Write::Update(data) => {
                    check_row(data)?;
                    fence(&data.id)?;
                    let keys = self.own(&data.id).await?;
                    self.update_session(keys.key, data).await?;
                }
                Write::Origin { root, origin } => {
                    check_origin(origin)?;
                    fence(root)?;
                    let keys = self.own(root).await?;
                    if keys.key != keys.tree {
                        return Err(StoreError::Unknown { id: root.clone() }.into());
                    }
                    self.write_origin(keys.key, origin).await?;
                }
                Write::Run(run) => {
                    run.id.check_storable()?;
                    fence(&run.session_id)?;
                    let keys = self.own(&run.session_id).await?;
                    self.write_run(keys, run).await?;
                }
                Write::Append(line) => {
                    let root = fence(&line.session)?;
                    let keys = self.own(&line.session).await?;
                    self.append(root, keys.key, line)?;
                }
                Write::Skip { root, to } => {
                    fence(root)?;
                    self.own(root).await?;
                    self.skip(root, *to)?;
                }
                Write::Command(command) => self.write_command(command).await?,
                Write::Delete(id) => {
                    fence(id)?;
                    let keys = self.own(id).await?;
                    self.delete(keys).await?;
                }
            }
        }
        Ok(())
    }

    fn known(&self, id: &SessionId) -> Result<Keys, StoreError> {
        self.sessions.get(id).copied().ok_or_else(|| StoreError::Unknown { id: id.clone() })
    }

    /// The keys of a session of the batch's own tree; its fence is for no other.
    async fn own(&mut self, name: &SessionId) -> Result<Keys, Fault> {
        let keys = self.known(name)?;
        if self.tree.as_ref().is_some_and(|tree| tree.key == keys.tree) {
            return Ok(keys);
        }
        let root = self.client.query_one("SELECT id FROM sessions WHERE key = $1", &[&keys.tree]).await?;
        Err(StoreError::Fenced { root: id(SessionId::new(get::<&str>(&root, 0)?))? }.into())
    }

    /// That an id is taken comes before everything else that is wrong with a row.
    async fn refuse_taken(&mut self, name: &SessionId) -> Result<(), Fault> {
        let Some(keys) = self.sessions.get(name) else { return Ok(()) };
        let owner = match (&self.batch.fence, &self.tree) {
            (Some(fence), Some(tree)) if tree.key == keys.tree => fence.owner.clone(),
            _ => {
                let tree =
                    self.client.query_one("SELECT owner FROM trees WHERE key = $1", &[&keys.tree]).await?;
                id(OwnerId::new(get::<&str>(&tree, 0)?))?
            }
        };
        Err(StoreError::Taken { id: name.clone(), owner }.into())
    }

    async fn insert_session(&mut self, data: &'a SessionData) -> Result<(), Fault> {
        self.refuse_taken(&data.id).await?;
        let fence: &Fence =
            self.batch.fence.as_ref().ok_or_else(|| StoreError::Fenced { root: data.root_id.clone() })?;
        if data.root_id != fence.root {
            return Err(StoreError::Fenced { root: data.root_id.clone() }.into());
        }
        let is_root = data.id == data.root_id;
        let (parent, tree_key) = if is_root {
            (None, None)
        } else {
            let tree = self.tree.as_ref().ok_or_else(|| StoreError::Unknown { id: data.root_id.clone() })?;
            let parent = data.parent_id.as_ref().unwrap_or(&data.root_id);
            let found =
                self.sessions.get(parent).filter(|keys| data.parent_id.is_some() && keys.tree == tree.key);
            let keys = found.ok_or_else(|| StoreError::Unknown { id: parent.clone() })?;
            (Some(keys.key), Some(tree.key))
        };
        let key = self.fresh.pop_front().ok_or_else(|| Fault::Unusable("it gave too few keys".to_owned()))?;
        // A root's parent, if it names one, is in no tree of ours (rule L3).
        let parent_id = data.parent_id.as_ref().filter(|_| is_root).map(SessionId::as_str);
        let statement = self.client.prepare_cached(columns::INSERT_SESSION).await?;
        let row = columns::Session::of(data)?;
        let (client, name, depth) = (self.client, data.id.as_str(), i64::from(data.depth));
        self.queue.push(Box::pin(async move {
            let own: [&(dyn ToSql + Sync); 6] = [&key, &name, &parent, &parent_id, &tree_key, &depth];
            client.execute(&statement, &[&own[..], &row.parameters()[..]].concat()).await
        }));
        let keys = Keys { key, tree: tree_key.unwrap_or(key), last_run: 0 };
        self.sessions.insert(data.id.clone(), keys);
        if is_root {
            let sql = "INSERT INTO trees (key, owner, epoch, last_seq, open_runs, bytes) VALUES ($1, $2, $3, 0, 0, 0)";
            let statement = self.client.prepare_cached(sql).await?;
            let (owner, epoch) = (fence.owner.as_str(), fence.epoch.cast_signed());
            self.queue
                .push(Box::pin(async move { client.execute(&statement, &[&key, &owner, &epoch]).await }));
            self.tree = Some(Tree { key, last_seq: 0, open_runs: 0, bytes: 0 });
        }
        self.grow(SESSION_BYTES);
        Ok(())
    }

    fn grow(&mut self, bytes: i64) {
        if let Some(tree) = &mut self.tree {
            tree.bytes = tree.bytes.saturating_add(bytes);
        }
    }

    async fn update_session(&mut self, key: i64, data: &'a SessionData) -> Result<(), Fault> {
        let statement = self.client.prepare_cached(columns::UPDATE_SESSION).await?;
        let row = columns::Session::of(data)?;
        let client = self.client;
        self.queue.push(Box::pin(async move {
            let own: [&(dyn ToSql + Sync); 1] = [&key];
            client.execute(&statement, &[&own[..], &row.parameters()[..]].concat()).await
        }));
        Ok(())
    }

    async fn write_origin(&mut self, tree: i64, origin: &'a Origin) -> Result<(), Fault> {
        const SQL: &str = "INSERT INTO origins (tree, manifest, manifest_path, node, prompt, cwd, program_version, \
            rerun_of) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tree) DO UPDATE SET \
            manifest = excluded.manifest, manifest_path = excluded.manifest_path, node = excluded.node, \
            prompt = excluded.prompt, cwd = excluded.cwd, program_version = excluded.program_version, \
            rerun_of = excluded.rerun_of";
        let statement = self.client.prepare_cached(SQL).await?;
        let client = self.client;
        self.queue.push(Box::pin(async move {
            let (manifest, node) = (text::store(&origin.manifest), text::store(origin.node.as_str()));
            let (path, cwd) = (origin.manifest_path.as_deref(), origin.cwd.as_deref());
            let (path, cwd) = (path.map(text::store), cwd.map(text::store));
            let (prompt, version) = (text::store(&origin.prompt), text::store(&origin.program_version));
            let rerun_of = origin.rerun_of.as_ref().map(SessionId::as_str);
            client
                .execute(&statement, &[&tree, &manifest, &path, &node, &prompt, &cwd, &version, &rerun_of])
                .await
        }));
        self.grow(length(&origin.manifest) + length(&origin.prompt));
        Ok(())
    }

    async fn write_run(&mut self, keys: Keys, run: &'a RunRecord) -> Result<(), Fault> {
        let name = (keys.key, run.id.clone());
        let before = self.runs.get(&name).copied();
        let n = match before {
            Some(before) => before.n,
            None => {
                let last = keys.last_run + 1;
                if let Some(keys) = self.sessions.get_mut(&run.session_id) {
                    keys.last_run = last;
                }
                last
            }
        };
        let open = run.state.is_open();
        self.runs.insert(name, RunKey { n, open });
        if let Some(tree) = &mut self.tree {
            tree.open_runs += i64::from(open) - i64::from(before.is_some_and(|before| before.open));
        }
        let statement = self.client.prepare_cached(columns::WRITE_RUN).await?;
        let (client, session) = (self.client, keys.key);
        self.queue.push(Box::pin(async move {
            let row = columns::Run::of(run);
            let own: [&(dyn ToSql + Sync); 2] = [&session, &n];
            client.execute(&statement, &[&own[..], &row.parameters()[..]].concat()).await
        }));
        Ok(())
    }

    fn append(&mut self, root: &SessionId, session: i64, line: &'a LogRow) -> Result<(), Fault> {
        let Some(tree) = &mut self.tree else {
            return Err(StoreError::Unknown { id: line.session.clone() }.into());
        };
        let expected = tree.last_seq.saturating_add(1);
        if line.seq != expected {
            return Err(StoreError::NotNext { root: root.clone(), expected, got: line.seq }.into());
        }
        let seq = number(line.seq)?;
        tree.last_seq = line.seq;
        let run = match &line.run {
            None => (None, None),
            Some(id) => {
                id.check_storable()?;
                match self.runs.get(&(session, id.clone())) {
                    Some(run) => (Some(run.n), None),
                    None => (None, Some(id.as_str())),
                }
            }
        };
        self.lines.push(seq, session, run, line);
        self.grow(LINE_BYTES + length(line.event.data().get()));
        Ok(())
    }

    /// Numbers that stay without a line.
    fn skip(&mut self, root: &SessionId, to: u64) -> Result<(), Fault> {
        let Some(tree) = &mut self.tree else { return Err(StoreError::Unknown { id: root.clone() }.into()) };
        let expected = tree.last_seq.saturating_add(1);
        if to < expected {
            return Err(StoreError::NotNext { root: root.clone(), expected, got: to }.into());
        }
        number(to)?;
        tree.last_seq = to;
        Ok(())
    }

    async fn write_command(&mut self, command: &'a CommandRow) -> Result<(), Fault> {
        const SQL: &str = "INSERT INTO commands (id, tree, session, kind, asked_at, answer) \
            VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO UPDATE SET tree = excluded.tree, \
            session = excluded.session, kind = excluded.kind, asked_at = excluded.asked_at, answer = excluded.answer";
        command.session.check_storable()?;
        let root = self.known(&command.root)?;
        let statement = self.client.prepare_cached(SQL).await?;
        let kind = serde_json::to_string(&command.kind).map_err(|error| Fault::Row(error.to_string()))?;
        let client = self.client;
        self.queue.push(Box::pin(async move {
            let (name, session) = (text::store(&command.id), command.session.as_str());
            let answer: Option<Cow<'_, str>> = command.answer.as_deref().map(text::store);
            client
                .execute(&statement, &[&name, &root.key, &session, &kind, &command.asked_at.0, &answer])
                .await
        }));
        Ok(())
    }

    /// Sends what is to be sent first: only the tables know what is below a session.
    async fn delete(&mut self, top: Keys) -> Result<(), Fault> {
        const BELOW: &str = "WITH RECURSIVE below (key) AS (VALUES ($1::bigint) UNION ALL \
            SELECT s.key FROM below JOIN sessions s ON s.parent = below.key) \
            SELECT s.key, s.id, (SELECT count(*) FROM runs r WHERE r.session = s.key \
            AND r.state IN ('pending', 'running')) FROM below JOIN sessions s ON s.key = below.key";
        const LINES: &str = "WITH gone AS (DELETE FROM events WHERE tree = $1 AND session = ANY ($2) \
            RETURNING octet_length(data) AS bytes) \
            SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM gone";
        self.lines().await?;
        self.flush().await?;
        let client = self.client;
        let gone = client.query(&client.prepare_cached(BELOW).await?, &[&top.key]).await?;
        let (mut keys, mut ids, mut open): (Vec<i64>, Vec<String>, i64) = (Vec::new(), Vec::new(), 0);
        for row in &gone {
            keys.push(get(row, 0)?);
            ids.push(get(row, 1)?);
            open += get::<i64>(row, 2)?;
        }
        if top.key == top.tree {
            client.execute("DELETE FROM events WHERE tree = $1", &[&top.key]).await?;
            client.execute("DELETE FROM origins WHERE tree = $1", &[&top.key]).await?;
            client.execute("DELETE FROM trees WHERE key = $1", &[&top.key]).await?;
            self.tree = None;
        } else {
            let lines = client.query_one(&client.prepare_cached(LINES).await?, &[&top.tree, &keys]).await?;
            let (count, bytes): (i64, i64) = (get(&lines, 0)?, get(&lines, 1)?);
            let rows = i64::try_from(keys.len()).unwrap_or(i64::MAX);
            self.grow(-(bytes + count * LINE_BYTES + rows * SESSION_BYTES));
            if let Some(tree) = &mut self.tree {
                tree.open_runs -= open;
            }
        }
        client.execute("DELETE FROM runs WHERE session = ANY ($1)", &[&keys]).await?;
        client
            .execute("DELETE FROM commands WHERE tree = ANY ($1) OR session = ANY ($2)", &[&keys, &ids])
            .await?;
        client.execute("DELETE FROM sessions WHERE key = ANY ($1)", &[&keys]).await?;
        for name in &ids {
            self.sessions.remove(name.as_str());
        }
        let gone: HashSet<i64, RandomState> = keys.into_iter().collect();
        self.runs.retain(|(session, _), _| !gone.contains(session));
        Ok(())
    }

    /// Queues the lines that were gathered, in one statement.
    async fn lines(&mut self) -> Result<(), Fault> {
        let (lines, Some(tree)) = (std::mem::take(&mut self.lines), &self.tree) else { return Ok(()) };
        if lines.is_empty() {
            return Ok(());
        }
        let statement = self.client.prepare_cached(Lines::SQL).await?;
        let (client, tree) = (self.client, tree.key);
        self.queue.push(Box::pin(async move { client.execute(&statement, &lines.parameters(&tree)).await }));
        Ok(())
    }

    async fn tree_row(&mut self) -> Result<(), Fault> {
        // Also where nothing of it changes: the row shows which transaction wrote it last.
        let Some(tree) = self.tree.clone() else { return Ok(()) };
        let sql = "UPDATE trees SET last_seq = $2, open_runs = $3, bytes = $4 WHERE key = $1";
        let statement = self.client.prepare_cached(sql).await?;
        let client = self.client;
        self.queue.push(Box::pin(async move {
            let Tree { key, last_seq, open_runs, bytes } = tree;
            client.execute(&statement, &[&key, &last_seq.cast_signed(), &open_runs, &bytes]).await
        }));
        Ok(())
    }
}

/// Whether it was this batch that was committed under a number that is: the tree's row shows who wrote it last. `None`
/// when somebody has written it since, so that it does not show.
pub(super) async fn is_there(
    client: &Object,
    batch: &Batch,
    in_doubt: &InDoubt,
) -> Result<Option<bool>, Fault> {
    const SQL: &str = "SELECT t.xmin::text, t.epoch, t.last_seq FROM trees t \
                       JOIN sessions s ON s.key = t.key WHERE s.id = $1";
    // Commands are written again as they are.
    let Some(fence) = &batch.fence else { return Ok(Some(true)) };
    let found = client.query_opt(&client.prepare_cached(SQL).await?, &[&fence.root.as_str()]).await?;
    let Some(row) = found else {
        let deletes = |write: &Write| matches!(write, Write::Delete(id) if *id == fence.root);
        return Ok(Some(batch.writes.iter().any(deletes)));
    };
    // A row shows the lower half of the number.
    let ours = in_doubt.transaction.parse::<u64>().unwrap_or_default() & u64::from(u32::MAX);
    let (writer, epoch, last_seq): (&str, i64, i64) = (get(&row, 0)?, get(&row, 1)?, get(&row, 2)?);
    if writer == ours.to_string() {
        return Ok(Some(true));
    }
    let is_behind = last_seq.cast_unsigned() < in_doubt.committed.last_seq;
    Ok((epoch.cast_unsigned() == fence.epoch && is_behind).then_some(false))
}

/// A number that a column can hold.
fn number(seq: u64) -> Result<i64, Fault> {
    i64::try_from(seq).map_err(|_| Fault::Unusable(format!("it holds no line {seq}")))
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

/// What a batch names, to be looked up at once. An id that no row can have is left out and found nowhere.
#[derive(Default)]
struct Named<'a> {
    sessions: Vec<&'a str>,
    runs_of: Vec<&'a str>,
    runs: Vec<&'a str>,
    /// How many new rows there may be.
    new: i64,
}

impl<'a> Named<'a> {
    fn of(batch: &'a Batch) -> Self {
        let mut named = Self::default();
        let mut seen: HashSet<&SessionId, RandomState> = HashSet::default();
        let mut seen_runs: HashSet<(&SessionId, &RunId), RandomState> = HashSet::default();
        for write in &batch.writes {
            let (sessions, run): ([Option<&SessionId>; 3], Option<&RunId>) = match write {
                Write::Session(data) => {
                    named.new += 1;
                    ([Some(&data.id), data.parent_id.as_ref(), Some(&data.root_id)], None)
                }
                Write::Update(data) => ([Some(&data.id), None, None], None),
                Write::Run(run) => ([Some(&run.session_id), None, None], Some(&run.id)),
                Write::Append(line) => ([Some(&line.session), None, None], line.run.as_ref()),
                Write::Origin { root, .. } | Write::Skip { root, .. } => ([Some(root), None, None], None),
                Write::Command(command) => ([Some(&command.root), None, None], None),
                Write::Delete(id) => ([Some(id), None, None], None),
            };
            let runs_of = run.and(sessions[0]).filter(|session| session.check_storable().is_ok());
            for session in sessions.into_iter().flatten() {
                if session.check_storable().is_ok() && seen.insert(session) {
                    named.sessions.push(session.as_str());
                }
            }
            if let (Some(session), Some(run)) = (runs_of, run)
                && run.check_storable().is_ok()
                && seen_runs.insert((session, run))
            {
                named.runs_of.push(session.as_str());
                named.runs.push(run.as_str());
            }
        }
        named
    }
}
