//! What the tables say.

use std::{collections::HashMap, sync::LazyLock};

use foldhash::fast::RandomState;
use offspring_protocol::{
    AgentType, External, NodeName, Origin, OwnerId, PeerId, PoolId, ProjectId, RawEvent, RunId, RunRecord,
    SessionData, SessionId, SessionLimits, SourceType, TaskKey, Timestamp, Usage,
};
use rusqlite::{Connection, OptionalExtension, Params, Row, types::ValueRef};
use serde_json::value::RawValue;

use super::{code, fault::Fault, kind, long};
use crate::store::{
    CommandRow, EventQuery, Fence, LogRow, MAX_PAGE_BYTES, SessionQuery, SessionRecord, TreeQuery,
    TreeRecord, TreeSize,
    prefix::{PREFIX_LIMIT, after_prefix},
};

type Map<K, V> = HashMap<K, V, RandomState>;

const RUN_COLUMNS: &str = "r.id, r.ordinal, r.state, r.error, r.input_tokens, r.output_tokens, r.cached_tokens, \
     r.cost_micro_usd, r.messages, r.process, r.opened_at, r.ended_at, r.left_out_bytes";

/// The select of a [`SessionRecord`] from `sessions s`, up to its `WHERE`.
macro_rules! record_sql {
    ($name:ident, $with:literal, $rest:literal) => {
        static $name: LazyLock<String> = LazyLock::new(|| {
            format!(
                concat!(
                    $with,
                    "SELECT s.id, coalesce((SELECT p.id FROM sessions p WHERE p.key = s.parent), s.parent_id), \
                     coalesce((SELECT t.id FROM sessions t WHERE t.key = s.tree), s.id), s.depth, s.project_id, s.cwd, \
                     s.agent_name, s.agent_type, s.source_type, s.pool_id, s.task, s.title, s.model, s.settings, \
                     s.max_depth, s.max_descendants, s.max_live_children, s.max_wall_ms, s.peer, s.external_id, \
                     s.created_at, s.last_active_at, s.metadata, s.version, \
                     CASE WHEN s.tree IS NULL THEN (SELECT o.rerun_of FROM origins o WHERE o.tree = s.key) END, \
                     {columns} FROM sessions s \
                     LEFT JOIN runs r ON r.session = s.key AND r.n = \
                     (SELECT max(l.n) FROM runs l WHERE l.session = s.key) ",
                    $rest
                ),
                columns = RUN_COLUMNS
            )
        });
    };
}

/// Where the columns of the last run begin.
const RUN_AT: usize = 25;

record_sql!(BY_ID, "", "WHERE s.id = ?1");
record_sql!(
    ROOTS,
    "",
    "WHERE s.key IN (SELECT key FROM trees ORDER BY key DESC LIMIT ?1) ORDER BY s.key DESC"
);
record_sql!(CHILDREN, "", "WHERE s.parent = (SELECT key FROM sessions WHERE id = ?1) ORDER BY s.key");
record_sql!(
    SUBTREE,
    "WITH RECURSIVE below (key) AS (SELECT key FROM sessions WHERE id = ?1 UNION ALL \
     SELECT c.key FROM below JOIN sessions c ON c.parent = below.key) ",
    // A parent is always made before its children, so the order of creation is an order of the tree.
    "WHERE s.key IN (SELECT key FROM below) ORDER BY s.key"
);
record_sql!(PREFIX, "", "WHERE s.id >= ?1 AND (?2 IS NULL OR s.id < ?2) ORDER BY s.depth, s.key LIMIT ?3");

pub(super) fn session(conn: &Connection, id: &SessionId) -> Result<Option<SessionRecord>, Fault> {
    Ok(records(conn, &BY_ID, [id.as_str()])?.into_iter().next())
}

pub(super) fn sessions(conn: &Connection, query: &SessionQuery) -> Result<Vec<SessionRecord>, Fault> {
    match query {
        SessionQuery::Roots { limit } => records(conn, &ROOTS, [sql_limit(*limit)]),
        SessionQuery::Children(id) => records(conn, &CHILDREN, [id.as_str()]),
        SessionQuery::Subtree(id) => records(conn, &SUBTREE, [id.as_str()]),
        SessionQuery::Prefix(prefix) => records(conn, &PREFIX, (prefix, after_prefix(prefix), PREFIX_LIMIT)),
    }
}

fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn records(conn: &Connection, sql: &str, params: impl Params) -> Result<Vec<SessionRecord>, Fault> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(record(row)?);
    }
    Ok(found)
}

fn record(row: &Row<'_>) -> Result<SessionRecord, Fault> {
    let id = code::id(SessionId::new(text(row, 0)?))?;
    let data = SessionData {
        parent_id: optional(row, 1)?.map(SessionId::new).map(code::id).transpose()?,
        root_id: code::id(SessionId::new(text(row, 2)?))?,
        depth: row.get(3)?,
        project_id: optional(row, 4)?.map(ProjectId::new).map(code::id).transpose()?,
        cwd: row.get(5)?,
        agent_name: code::id(NodeName::new(text(row, 6)?))?,
        agent_type: AgentType::from(text(row, 7)?),
        source_type: optional(row, 8)?.map(SourceType::from),
        pool_id: optional(row, 9)?.map(PoolId::new).map(code::id).transpose()?,
        task: optional(row, 10)?.map(TaskKey::new).map(code::id).transpose()?,
        title: row.get(11)?,
        model: row.get(12)?,
        settings: row.get::<_, Option<String>>(13)?.map(raw).transpose()?,
        limits: SessionLimits {
            max_depth: row.get(14)?,
            max_descendants: row.get(15)?,
            max_live_children: row.get(16)?,
            max_wall_ms: row.get::<_, Option<i64>>(17)?.map(i64::cast_unsigned),
        },
        external: match (optional(row, 18)?, row.get(19)?) {
            (Some(peer), Some(id)) => Some(External { peer: code::id(PeerId::new(peer))?, id }),
            _ => None,
        },
        created_at: Timestamp(row.get(20)?),
        last_active_at: Timestamp(row.get(21)?),
        metadata: optional(row, 22)?.map(code::from_json).transpose()?.unwrap_or_default(),
        version: row.get(23)?,
        id,
    };
    let has_run = !matches!(row.get_ref(RUN_AT)?, ValueRef::Null);
    let last_run = has_run.then(|| run(row, RUN_AT, &data.id)).transpose()?;
    let rerun_of = optional(row, RUN_AT - 1)?.map(SessionId::new).map(code::id).transpose()?;
    Ok(SessionRecord { data, last_run, rerun_of })
}

fn run(row: &Row<'_>, at: usize, session: &SessionId) -> Result<RunRecord, Fault> {
    let number = |column: usize| row.get::<_, i64>(at + column).map(i64::cast_unsigned);
    Ok(RunRecord {
        id: code::id(RunId::new(text(row, at)?))?,
        session_id: session.clone(),
        ordinal: row.get(at + 1)?,
        state: code::run_state_of(row.get(at + 2)?)?,
        error: row.get(at + 3)?,
        usage: Usage {
            input_tokens: number(4)?,
            output_tokens: number(5)?,
            cached_tokens: number(6)?,
            cost_micro_usd: row.get::<_, Option<i64>>(at + 7)?.map(i64::cast_unsigned),
            messages: number(8)?,
        },
        process: row.get(at + 9)?,
        opened_at: Timestamp(row.get(at + 10)?),
        ended_at: row.get::<_, Option<i64>>(at + 11)?.map(Timestamp),
        left_out_bytes: number(12)?,
    })
}

pub(super) fn origin(conn: &Connection, root: &SessionId) -> Result<Option<Origin>, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT manifest, manifest_path, node, prompt, cwd, program_version, rerun_of FROM origins \
         WHERE tree = (SELECT key FROM sessions WHERE id = ?1)",
    )?;
    let mut rows = statement.query([root.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Origin {
        manifest: row.get(0)?,
        manifest_path: row.get(1)?,
        node: code::id(NodeName::new(text(row, 2)?))?,
        prompt: long::read(row, 3)?,
        cwd: row.get(4)?,
        program_version: row.get(5)?,
        rerun_of: optional(row, 6)?.map(SessionId::new).map(code::id).transpose()?,
    }))
}

/// The texts count by their length, and what is around them by what it takes as a rule.
pub(super) fn tree_size(conn: &Connection, root: &SessionId) -> Result<TreeSize, Fault> {
    const SESSION_BYTES: i64 = 400;
    const EVENT_BYTES: i64 = 24;
    let key = conn
        .prepare_cached("SELECT key FROM sessions WHERE id = ?1 AND tree IS NULL")?
        .query_row([root.as_str()], |row| row.get::<_, i64>(0))
        .optional()?;
    let Some(key) = key else { return Ok(TreeSize::default()) };
    let sessions: i64 = conn
        .prepare_cached(
            "WITH RECURSIVE below (key) AS (VALUES (?1) UNION ALL \
             SELECT s.key FROM below JOIN sessions s ON s.parent = below.key) SELECT count(*) FROM below",
        )?
        .query_row([key], |row| row.get(0))?;
    let (events, bytes): (i64, i64) = conn
        .prepare_cached(
            "SELECT count(*), coalesce(sum(octet_length(data)), 0) FROM events WHERE key BETWEEN ?1 AND ?2",
        )?
        .query_row((code::event_key(key, 0)?, code::last_event_key(key)), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let origin: i64 = conn
        .prepare_cached("SELECT octet_length(manifest) + octet_length(prompt) FROM origins WHERE tree = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?
        .unwrap_or_default();
    let bytes = bytes + events * EVENT_BYTES + sessions * SESSION_BYTES + origin;
    Ok(TreeSize { sessions: sessions.cast_unsigned(), bytes: bytes.cast_unsigned() })
}

pub(super) fn runs(conn: &Connection, session: &SessionId) -> Result<Vec<RunRecord>, Fault> {
    static RUNS: LazyLock<String> = LazyLock::new(|| {
        format!(
            "SELECT {RUN_COLUMNS} FROM runs r WHERE r.session = (SELECT key FROM sessions WHERE id = ?1) ORDER BY r.n"
        )
    });
    let mut statement = conn.prepare_cached(&RUNS)?;
    let mut rows = statement.query([session.as_str()])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(run(row, 0, session)?);
    }
    Ok(found)
}

pub(super) fn trees(conn: &Connection, query: &TreeQuery) -> Result<Vec<TreeRecord>, Fault> {
    const ONE: &str = "SELECT s.id, t.owner, t.epoch, t.last_seq, t.open_runs FROM sessions s \
                       JOIN trees t ON t.key = s.key WHERE s.id = ?1";
    const OPEN: &str = "SELECT s.id, t.owner, t.epoch, t.last_seq, t.open_runs FROM trees t \
                        JOIN sessions s ON s.key = t.key WHERE t.open_runs > 0 ORDER BY t.key";
    let mut statement;
    let mut rows = match query {
        TreeQuery::Root(root) => {
            statement = conn.prepare_cached(ONE)?;
            statement.query([root.as_str()])?
        }
        TreeQuery::Open => {
            statement = conn.prepare_cached(OPEN)?;
            statement.query([])?
        }
    };
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
        found.push(TreeRecord {
            fence: Fence {
                root: code::id(SessionId::new(text(row, 0)?))?,
                owner: code::id(OwnerId::new(text(row, 1)?))?,
                epoch: number(2)?,
            },
            last_seq: number(3)?,
            open_runs: number(4)?,
        });
    }
    Ok(found)
}

pub(super) fn events(conn: &Connection, query: &EventQuery) -> Result<Vec<LogRow>, Fault> {
    let (Some(tree), Ok(after)) = (key_of(conn, &query.root)?, u32::try_from(query.after)) else {
        return Ok(Vec::new());
    };
    let session = match &query.session {
        None => None,
        Some(session) => match key_of(conn, session)? {
            None => return Ok(Vec::new()),
            found => found,
        },
    };
    let mut statement = conn.prepare_cached(
        "SELECT key, session, run, at, late, kind, data FROM events WHERE key > ?1 AND key <= ?2 \
         AND (?3 IS NULL OR session = ?3) ORDER BY key LIMIT ?4",
    )?;
    let range = (code::event_key(tree, after.into())?, code::last_event_key(tree));
    let mut rows = statement.query((range.0, range.1, session, sql_limit(query.limit)))?;
    let mut names = Names { conn, sessions: Map::default(), runs: Map::default() };
    let mut found: Vec<LogRow> = Vec::new();
    let mut bytes = 0;
    while bytes < MAX_PAGE_BYTES
        && let Some(row) = rows.next()?
    {
        let session: i64 = row.get(1)?;
        let run = match row.get_ref(2)? {
            ValueRef::Null => None,
            ValueRef::Integer(n) => Some(names.run(session, n)?),
            _ => Some(code::id(RunId::new(text(row, 2)?))?),
        };
        let data = raw(long::read(row, 6)?)?;
        bytes += data.get().len();
        found.push(LogRow {
            seq: code::seq_of(row.get(0)?),
            session: names.session(session)?,
            run,
            at: Timestamp(row.get(3)?),
            late: row.get(4)?,
            event: RawEvent::new(kind::decode(row.get_ref(5)?)?, data),
        });
    }
    Ok(found)
}

fn key_of(conn: &Connection, id: &SessionId) -> Result<Option<i64>, Fault> {
    let mut statement = conn.prepare_cached("SELECT key FROM sessions WHERE id = ?1")?;
    Ok(statement.query_row([id.as_str()], |row| row.get(0)).optional()?)
}

/// The ids behind keys, each looked up once per query and shared by its lines.
struct Names<'a> {
    conn: &'a Connection,
    sessions: Map<i64, SessionId>,
    runs: Map<(i64, i64), RunId>,
}

impl Names<'_> {
    fn session(&mut self, key: i64) -> Result<SessionId, Fault> {
        if let Some(id) = self.sessions.get(&key) {
            return Ok(id.clone());
        }
        let mut statement = self.conn.prepare_cached("SELECT id FROM sessions WHERE key = ?1")?;
        let id: String = statement.query_row([key], |row| row.get(0))?;
        let id = code::id(SessionId::new(id))?;
        self.sessions.insert(key, id.clone());
        Ok(id)
    }

    fn run(&mut self, session: i64, n: i64) -> Result<RunId, Fault> {
        if let Some(id) = self.runs.get(&(session, n)) {
            return Ok(id.clone());
        }
        let mut statement = self.conn.prepare_cached("SELECT id FROM runs WHERE session = ?1 AND n = ?2")?;
        let id: String = statement.query_row((session, n), |row| row.get(0))?;
        let id = code::id(RunId::new(id))?;
        self.runs.insert((session, n), id.clone());
        Ok(id)
    }
}

pub(super) fn open_commands(conn: &Connection, root: &SessionId) -> Result<Vec<CommandRow>, Fault> {
    let sql = "SELECT c.id, s.id, c.session, c.kind, c.asked_at, c.answer FROM commands c \
               JOIN sessions s ON s.key = c.tree WHERE s.id = ?1 AND c.answer IS NULL ORDER BY c.asked_at, c.id";
    commands(conn, sql, root.as_str())
}

pub(super) fn command(conn: &Connection, id: &str) -> Result<Option<CommandRow>, Fault> {
    let sql = "SELECT c.id, s.id, c.session, c.kind, c.asked_at, c.answer FROM commands c \
               JOIN sessions s ON s.key = c.tree WHERE c.id = ?1";
    Ok(commands(conn, sql, id)?.into_iter().next())
}

fn commands(conn: &Connection, sql: &str, param: &str) -> Result<Vec<CommandRow>, Fault> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([param])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(CommandRow {
            id: row.get(0)?,
            root: code::id(SessionId::new(text(row, 1)?))?,
            session: code::id(SessionId::new(text(row, 2)?))?,
            kind: code::from_json(text(row, 3)?)?,
            asked_at: Timestamp(row.get(4)?),
            answer: row.get(5)?,
        });
    }
    Ok(found)
}

fn raw(json: String) -> Result<Box<RawValue>, Fault> {
    RawValue::from_string(json).map_err(|error| Fault::Row(format!("stored JSON cannot be read: {error}")))
}

fn optional<'a>(row: &'a Row<'_>, column: usize) -> Result<Option<&'a str>, Fault> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        ValueRef::Text(bytes) => {
            str::from_utf8(bytes).map(Some).map_err(|_| Fault::Row(format!("column {column} is not UTF-8")))
        }
        other => Err(Fault::Row(format!("column {column} holds {:?}, not text", other.data_type()))),
    }
}

fn text<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a str, Fault> {
    optional(row, column)?.ok_or_else(|| Fault::Row(format!("column {column} is empty")))
}
