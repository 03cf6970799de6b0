//! What the tables say. Each question is one statement, so that it sees one moment.

use std::sync::LazyLock;

use deadpool_postgres::Object;
use offspring_protocol::{
    AgentType, BadId, External, NodeName, Origin, OwnerId, PeerId, PoolId, ProjectId, RawEvent, RunId,
    RunRecord, RunState, SessionData, SessionId, SessionLimits, SourceType, TaskKey, Timestamp, Usage,
};
use serde_json::value::RawValue;
use tokio_postgres::{
    Row,
    types::{FromSql, ToSql},
};

use super::{fault::Fault, text};
use crate::store::{
    CommandRow, EventQuery, Fence, LogRow, MAX_PAGE_BYTES, SessionQuery, SessionRecord, Space, TreeQuery,
    TreeRecord, TreeSize,
    prefix::{PREFIX_LIMIT, after_prefix},
};

/// Lines of a page at most, so that a server does not look through a whole log for a page.
const PAGE_LINES: usize = 10_000;

const RUN_COLUMNS: &str = "r.id, r.ordinal, r.state, r.error, r.input_tokens, r.output_tokens, r.cached_tokens, \
     r.cost_micro_usd, r.messages, r.process, r.opened_at, r.ended_at, r.left_out_bytes";

/// Where the columns of the last run begin.
const RUN_AT: usize = 25;

/// The select of a [`SessionRecord`] from `sessions s`, with what comes before and after it.
fn record_sql(with: &str, rest: &str) -> String {
    format!(
        "{with}SELECT s.id, coalesce((SELECT p.id FROM sessions p WHERE p.key = s.parent), s.parent_id), \
         coalesce((SELECT t.id FROM sessions t WHERE t.key = s.tree), s.id), s.depth, s.project_id, s.cwd, \
         s.agent_name, s.agent_type, s.source_type, s.pool_id, s.task, s.title, s.model, s.settings, s.max_depth, \
         s.max_descendants, s.max_live_children, s.max_wall_ms, s.peer, s.external_id, s.created_at, \
         s.last_active_at, s.metadata, s.version, \
         CASE WHEN s.tree IS NULL THEN (SELECT o.rerun_of FROM origins o WHERE o.tree = s.key) END, \
         {RUN_COLUMNS} FROM sessions s \
         LEFT JOIN LATERAL (SELECT * FROM runs l WHERE l.session = s.key ORDER BY l.n DESC LIMIT 1) r ON true {rest}"
    )
}

static BY_ID: LazyLock<String> = LazyLock::new(|| record_sql("", "WHERE s.id = $1"));
static ROOTS: LazyLock<String> = LazyLock::new(|| {
    record_sql("", "WHERE s.key IN (SELECT key FROM trees ORDER BY key DESC LIMIT $1) ORDER BY s.key DESC")
});
static CHILDREN: LazyLock<String> = LazyLock::new(|| {
    record_sql("", "WHERE s.parent = (SELECT key FROM sessions WHERE id = $1) ORDER BY s.key")
});
static SUBTREE: LazyLock<String> = LazyLock::new(|| {
    record_sql(
        "WITH RECURSIVE below (key) AS (SELECT key FROM sessions WHERE id = $1 UNION ALL \
         SELECT c.key FROM below JOIN sessions c ON c.parent = below.key) ",
        // A parent is always made before its children, so the order of creation is an order of the tree.
        "WHERE s.key IN (SELECT key FROM below) ORDER BY s.key",
    )
});
static FROM: LazyLock<String> =
    LazyLock::new(|| record_sql("", "WHERE s.id >= $1 ORDER BY s.depth, s.key LIMIT $2"));
static RANGE: LazyLock<String> =
    LazyLock::new(|| record_sql("", "WHERE s.id >= $1 AND s.id < $3 ORDER BY s.depth, s.key LIMIT $2"));
static RUNS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {RUN_COLUMNS} FROM runs r WHERE r.session = (SELECT key FROM sessions WHERE id = $1) ORDER BY r.n"
    )
});
async fn rows(client: &Object, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Fault> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query(&statement, parameters).await?)
}

pub(super) async fn session(client: &Object, id: SessionId) -> Result<Option<SessionRecord>, Fault> {
    if id.check_storable().is_err() {
        return Ok(None);
    }
    rows(client, &BY_ID, &[&id.as_str()]).await?.first().map(record).transpose()
}

pub(super) async fn sessions(client: &Object, query: SessionQuery) -> Result<Vec<SessionRecord>, Fault> {
    let found = match query {
        SessionQuery::Roots { limit } => rows(client, &ROOTS, &[&sql_limit(limit)]).await?,
        SessionQuery::Children(id) if id.check_storable().is_ok() => {
            rows(client, &CHILDREN, &[&id.as_str()]).await?
        }
        SessionQuery::Subtree(id) if id.check_storable().is_ok() => {
            rows(client, &SUBTREE, &[&id.as_str()]).await?
        }
        SessionQuery::Prefix(prefix) if !prefix.contains('\0') => match after_prefix(&prefix) {
            None => rows(client, &FROM, &[&prefix, &PREFIX_LIMIT]).await?,
            Some(end) => rows(client, &RANGE, &[&prefix, &PREFIX_LIMIT, &end]).await?,
        },
        _ => Vec::new(),
    };
    found.iter().map(record).collect()
}

fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn record(row: &Row) -> Result<SessionRecord, Fault> {
    let small = |column: usize| -> Result<Option<u32>, Fault> {
        let number: Option<i64> = get(row, column)?;
        number
            .map(u32::try_from)
            .transpose()
            .map_err(|_| Fault::Row(format!("column {column} is out of range")))
    };
    let data = SessionData {
        id: id(SessionId::new(get::<&str>(row, 0)?))?,
        parent_id: get::<Option<&str>>(row, 1)?.map(SessionId::new).map(id).transpose()?,
        root_id: id(SessionId::new(get::<&str>(row, 2)?))?,
        depth: small(3)?.unwrap_or_default(),
        project_id: word(row, 4)?.map(ProjectId::new).map(id).transpose()?,
        cwd: word(row, 5)?,
        agent_name: id(NodeName::new(text::restore(get(row, 6)?)?))?,
        agent_type: AgentType::from(text::restore(get(row, 7)?)?.as_str()),
        source_type: word(row, 8)?.map(|word| SourceType::from(word.as_str())),
        pool_id: word(row, 9)?.map(PoolId::new).map(id).transpose()?,
        task: word(row, 10)?.map(TaskKey::new).map(id).transpose()?,
        title: word(row, 11)?,
        model: word(row, 12)?,
        settings: get::<Option<String>>(row, 13)?.map(raw).transpose()?,
        limits: SessionLimits {
            max_depth: small(14)?,
            max_descendants: small(15)?,
            max_live_children: small(16)?,
            max_wall_ms: get::<Option<i64>>(row, 17)?.map(i64::cast_unsigned),
        },
        external: match (word(row, 18)?, word(row, 19)?) {
            (Some(peer), Some(name)) => Some(External { peer: id(PeerId::new(peer))?, id: name }),
            _ => None,
        },
        created_at: Timestamp(get(row, 20)?),
        last_active_at: Timestamp(get(row, 21)?),
        metadata: get::<Option<&str>>(row, 22)?.map(from_json).transpose()?.unwrap_or_default(),
        version: text::restore(get(row, 23)?)?,
    };
    let has_run = get::<Option<&str>>(row, RUN_AT)?.is_some();
    let last_run = has_run.then(|| run(row, RUN_AT, &data.id)).transpose()?;
    let rerun_of = get::<Option<&str>>(row, RUN_AT - 1)?.map(SessionId::new).map(id).transpose()?;
    Ok(SessionRecord { data, last_run, rerun_of })
}

fn run(row: &Row, at: usize, session: &SessionId) -> Result<RunRecord, Fault> {
    let number = |column: usize| get::<i64>(row, at + column).map(i64::cast_unsigned);
    let state: &str = get(row, at + 2)?;
    Ok(RunRecord {
        id: id(RunId::new(get::<&str>(row, at)?))?,
        session_id: session.clone(),
        ordinal: u32::try_from(number(1)?)
            .map_err(|_| Fault::Row("an ordinal is out of range".to_owned()))?,
        state: RunState::from_word(state)
            .ok_or_else(|| Fault::Row(format!("run state {state} is unknown")))?,
        error: word(row, at + 3)?,
        usage: Usage {
            input_tokens: number(4)?,
            output_tokens: number(5)?,
            cached_tokens: number(6)?,
            cost_micro_usd: get::<Option<i64>>(row, at + 7)?.map(i64::cast_unsigned),
            messages: number(8)?,
        },
        process: word(row, at + 9)?,
        opened_at: Timestamp(get(row, at + 10)?),
        ended_at: get::<Option<i64>>(row, at + 11)?.map(Timestamp),
        left_out_bytes: number(12)?,
    })
}

pub(super) async fn origin(client: &Object, root: SessionId) -> Result<Option<Origin>, Fault> {
    if root.check_storable().is_err() {
        return Ok(None);
    }
    let sql = "SELECT manifest, manifest_path, node, prompt, cwd, program_version, rerun_of FROM origins \
               WHERE tree = (SELECT key FROM sessions WHERE id = $1)";
    let found = rows(client, sql, &[&root.as_str()]).await?;
    let Some(row) = found.first() else { return Ok(None) };
    Ok(Some(Origin {
        manifest: text::restore(get(row, 0)?)?,
        manifest_path: word(row, 1)?,
        node: id(NodeName::new(text::restore(get(row, 2)?)?))?,
        prompt: text::restore(get(row, 3)?)?,
        cwd: word(row, 4)?,
        program_version: text::restore(get(row, 5)?)?,
        rerun_of: get::<Option<&str>>(row, 6)?.map(SessionId::new).map(id).transpose()?,
    }))
}

pub(super) async fn runs(client: &Object, session: SessionId) -> Result<Vec<RunRecord>, Fault> {
    if session.check_storable().is_err() {
        return Ok(Vec::new());
    }
    rows(client, &RUNS, &[&session.as_str()]).await?.iter().map(|row| run(row, 0, &session)).collect()
}

pub(super) async fn trees(client: &Object, query: TreeQuery) -> Result<Vec<TreeRecord>, Fault> {
    const ONE: &str = "SELECT s.id, t.owner, t.epoch, t.last_seq, t.open_runs FROM sessions s \
                       JOIN trees t ON t.key = s.key WHERE s.id = $1";
    const OPEN: &str = "SELECT s.id, t.owner, t.epoch, t.last_seq, t.open_runs FROM trees t \
                        JOIN sessions s ON s.key = t.key WHERE t.open_runs > 0 ORDER BY t.key";
    let found = match query {
        TreeQuery::Root(root) if root.check_storable().is_err() => Vec::new(),
        TreeQuery::Root(root) => rows(client, ONE, &[&root.as_str()]).await?,
        TreeQuery::Open => rows(client, OPEN, &[]).await?,
    };
    let tree = |row: &Row| {
        let number = |column: usize| get::<i64>(row, column).map(i64::cast_unsigned);
        let fence = Fence {
            root: id(SessionId::new(get::<&str>(row, 0)?))?,
            owner: id(OwnerId::new(get::<&str>(row, 1)?))?,
            epoch: number(2)?,
        };
        Ok(TreeRecord { fence, last_seq: number(3)?, open_runs: number(4)? })
    };
    found.iter().map(tree).collect()
}

pub(super) async fn events(client: &Object, query: EventQuery) -> Result<Vec<LogRow>, Fault> {
    // The page is cut by the server, so that what nobody takes does not travel.
    const SQL: &str = "SELECT e.seq, s.id, coalesce(r.id, e.run_id), e.at, e.late, e.kind, e.data FROM \
        (SELECT p.*, sum(p.bytes) OVER (ORDER BY p.seq) - p.bytes AS before FROM \
          (SELECT seq, session, run, run_id, at, late, kind, data, octet_length(data) AS bytes FROM events \
           WHERE tree = (SELECT key FROM sessions WHERE id = $1) AND seq > $2 ORDER BY seq LIMIT $3) p) e \
        JOIN sessions s ON s.key = e.session LEFT JOIN runs r ON r.session = e.session AND r.n = e.run \
        WHERE e.before < $4 ORDER BY e.seq";
    const OF_SESSION: &str = "SELECT e.seq, $5::text, coalesce(r.id, e.run_id), e.at, e.late, e.kind, e.data FROM \
        (SELECT p.*, sum(p.bytes) OVER (ORDER BY p.seq) - p.bytes AS before FROM \
          (SELECT seq, session, run, run_id, at, late, kind, data, octet_length(data) AS bytes FROM events \
           WHERE tree = (SELECT key FROM sessions WHERE id = $1) AND seq > $2 \
           AND session = (SELECT key FROM sessions WHERE id = $5) ORDER BY seq LIMIT $3) p) e \
        LEFT JOIN runs r ON r.session = e.session AND r.n = e.run WHERE e.before < $4 ORDER BY e.seq";
    let Ok(after) = i64::try_from(query.after) else { return Ok(Vec::new()) };
    let ids = [Some(&query.root), query.session.as_ref()];
    if ids.into_iter().flatten().any(|id| id.check_storable().is_err()) {
        return Ok(Vec::new());
    }
    let limit = sql_limit(query.limit.min(PAGE_LINES));
    let bytes = i64::try_from(MAX_PAGE_BYTES).unwrap_or(i64::MAX);
    let found = match &query.session {
        None => rows(client, SQL, &[&query.root.as_str(), &after, &limit, &bytes]).await?,
        Some(session) => {
            rows(client, OF_SESSION, &[&query.root.as_str(), &after, &limit, &bytes, &session.as_str()])
                .await?
        }
    };
    let mut lines: Vec<LogRow> = Vec::with_capacity(found.len());
    for row in found {
        let name: &str = get(&row, 1)?;
        let session = match lines.last() {
            // Most lines are of the session of the line before, whose id they share.
            Some(last) if last.session.as_str() == name => last.session.clone(),
            _ => id(SessionId::new(name))?,
        };
        lines.push(LogRow {
            seq: get::<i64>(&row, 0)?.cast_unsigned(),
            session,
            run: get::<Option<&str>>(&row, 2)?.map(RunId::new).map(id).transpose()?,
            at: Timestamp(get(&row, 3)?),
            late: get(&row, 4)?,
            event: RawEvent::new(text::restore(get(&row, 5)?)?, raw(get(&row, 6)?)?),
        });
    }
    Ok(lines)
}

const COMMAND: &str = "SELECT c.id, s.id, c.session, c.kind, c.asked_at, c.answer FROM commands c \
                       JOIN sessions s ON s.key = c.tree";

pub(super) async fn open_commands(client: &Object, root: SessionId) -> Result<Vec<CommandRow>, Fault> {
    static SQL: LazyLock<String> =
        LazyLock::new(|| format!("{COMMAND} WHERE s.id = $1 AND c.answer IS NULL ORDER BY c.asked_at, c.id"));
    if root.check_storable().is_err() {
        return Ok(Vec::new());
    }
    rows(client, &SQL, &[&root.as_str()]).await?.iter().map(one_command).collect()
}

pub(super) async fn command(client: &Object, name: String) -> Result<Option<CommandRow>, Fault> {
    static SQL: LazyLock<String> = LazyLock::new(|| format!("{COMMAND} WHERE c.id = $1"));
    rows(client, &SQL, &[&text::store(&name)]).await?.first().map(one_command).transpose()
}

fn one_command(row: &Row) -> Result<CommandRow, Fault> {
    Ok(CommandRow {
        id: text::restore(get(row, 0)?)?,
        root: id(SessionId::new(get::<&str>(row, 1)?))?,
        session: id(SessionId::new(get::<&str>(row, 2)?))?,
        kind: from_json(get(row, 3)?)?,
        asked_at: Timestamp(get(row, 4)?),
        answer: word(row, 5)?,
    })
}

/// What the tables take with all that is in them, and what of it is said to be ours.
pub(super) async fn space(client: &Object) -> Result<Space, Fault> {
    let sql = "SELECT (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c \
               WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'), \
               (SELECT coalesce(sum(bytes), 0)::bigint FROM trees)";
    let found = rows(client, sql, &[]).await?;
    let Some(row) = found.first() else { return Ok(Space::default()) };
    let number = |column: usize| get::<i64>(row, column).map(i64::cast_unsigned);
    Ok(Space { file_bytes: number(0)?, used_bytes: number(1)? })
}

pub(super) async fn tree_size(client: &Object, root: SessionId) -> Result<TreeSize, Fault> {
    let sql = "WITH RECURSIVE below (key) AS (SELECT key FROM sessions WHERE id = $1 AND tree IS NULL UNION ALL \
               SELECT s.key FROM below JOIN sessions s ON s.parent = below.key) \
               SELECT (SELECT count(*) FROM below), coalesce((SELECT t.bytes FROM trees t \
               JOIN sessions s ON s.key = t.key WHERE s.id = $1), 0)";
    if root.check_storable().is_err() {
        return Ok(TreeSize::default());
    }
    let found = rows(client, sql, &[&root.as_str()]).await?;
    let Some(row) = found.first() else { return Ok(TreeSize::default()) };
    let number = |column: usize| get::<i64>(row, column).map(i64::cast_unsigned);
    Ok(TreeSize { sessions: number(0)?, bytes: number(1)? })
}

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, Fault> {
    row.try_get(column).map_err(|error| Fault::Row(super::fault::said(&error)))
}

/// A text that may not be there.
fn word(row: &Row, column: usize) -> Result<Option<String>, Fault> {
    get::<Option<String>>(row, column)?.map(text::restore).transpose()
}

/// An id as it was stored; one that is none is damage.
pub(super) fn id<T>(read: Result<T, BadId>) -> Result<T, Fault> {
    read.map_err(|error| Fault::Row(error.to_string()))
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| Fault::Row(error.to_string()))
}

fn raw(json: String) -> Result<Box<RawValue>, Fault> {
    RawValue::from_string(json).map_err(|error| Fault::Row(format!("stored JSON cannot be read: {error}")))
}
