//! Rows of sessions and runs as parameters of statements.

use std::borrow::Cow;

use offspring_protocol::{RunRecord, SessionData};
use tokio_postgres::types::ToSql;

use super::{fault::Fault, text};

type Text<'a> = Option<Cow<'a, str>>;

/// Its first six parameters are key, id, parent, `parent_id`, tree and depth.
pub(super) const INSERT_SESSION: &str = "INSERT INTO sessions (key, id, parent, parent_id, tree, depth, project_id, \
    cwd, agent_name, agent_type, source_type, pool_id, task, title, model, settings, max_depth, max_descendants, \
    max_live_children, max_wall_ms, peer, external_id, created_at, last_active_at, metadata, version) VALUES ($1, $2, \
    $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)";

/// Everything but id, parent, root and depth. Its first parameter is the key.
pub(super) const UPDATE_SESSION: &str = "UPDATE sessions SET project_id = $2, cwd = $3, agent_name = $4, \
    agent_type = $5, source_type = $6, pool_id = $7, task = $8, title = $9, model = $10, settings = $11, \
    max_depth = $12, max_descendants = $13, max_live_children = $14, max_wall_ms = $15, peer = $16, external_id = $17, \
    created_at = $18, last_active_at = $19, metadata = $20, version = $21 WHERE key = $1";

/// Its first two parameters are the session's key and n.
pub(super) const WRITE_RUN: &str = "INSERT INTO runs (session, n, id, ordinal, state, error, input_tokens, \
    output_tokens, cached_tokens, cost_micro_usd, messages, process, opened_at, ended_at, left_out_bytes) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT (session, n) DO UPDATE SET \
    ordinal = excluded.ordinal, state = excluded.state, error = excluded.error, \
    input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens, \
    cached_tokens = excluded.cached_tokens, cost_micro_usd = excluded.cost_micro_usd, messages = excluded.messages, \
    process = excluded.process, opened_at = excluded.opened_at, ended_at = excluded.ended_at, \
    left_out_bytes = excluded.left_out_bytes";

/// What may change in a session's row.
pub(super) struct Session<'a> {
    texts: [Text<'a>; 8],
    agent_name: Cow<'a, str>,
    agent_type: Cow<'a, str>,
    settings: Option<&'a str>,
    limits: [Option<i64>; 4],
    external: Text<'a>,
    times: [i64; 2],
    metadata: Option<String>,
    version: Cow<'a, str>,
}

impl<'a> Session<'a> {
    pub(super) fn of(data: &'a SessionData) -> Result<Self, Fault> {
        let stored = |text: Option<&'a str>| text.map(text::store);
        let limits = &data.limits;
        let metadata = match data.metadata.is_empty() {
            // Most rows have none, and none takes no room.
            true => None,
            false => {
                Some(serde_json::to_string(&data.metadata).map_err(|error| Fault::Row(error.to_string()))?)
            }
        };
        Ok(Self {
            texts: [
                stored(data.project_id.as_ref().map(|id| id.as_str())),
                stored(data.cwd.as_deref()),
                stored(data.source_type.as_ref().map(|word| word.as_str())),
                stored(data.pool_id.as_ref().map(|id| id.as_str())),
                stored(data.task.as_ref().map(|id| id.as_str())),
                stored(data.title.as_deref()),
                stored(data.model.as_deref()),
                stored(data.external.as_ref().map(|external| external.peer.as_str())),
            ],
            agent_name: text::store(data.agent_name.as_str()),
            agent_type: text::store(data.agent_type.as_str()),
            settings: data.settings.as_ref().map(|raw| raw.get()),
            limits: [
                limits.max_depth.map(i64::from),
                limits.max_descendants.map(i64::from),
                limits.max_live_children.map(i64::from),
                limits.max_wall_ms.map(u64::cast_signed),
            ],
            external: stored(data.external.as_ref().map(|external| external.id.as_str())),
            times: [data.created_at.0, data.last_active_at.0],
            metadata,
            version: text::store(&data.version),
        })
    }

    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 20] {
        let [project, cwd, source, pool, task, title, model, peer] = &self.texts;
        let [depth, descendants, live, wall] = &self.limits;
        let [created, active] = &self.times;
        [
            project,
            cwd,
            &self.agent_name,
            &self.agent_type,
            source,
            pool,
            task,
            title,
            model,
            &self.settings,
            depth,
            descendants,
            live,
            wall,
            peer,
            &self.external,
            created,
            active,
            &self.metadata,
            &self.version,
        ]
    }
}

/// A run, but for its place.
pub(super) struct Run<'a> {
    id: &'a str,
    ordinal: i64,
    state: &'static str,
    error: Text<'a>,
    counts: [i64; 4],
    cost: Option<i64>,
    process: Text<'a>,
    opened_at: i64,
    ended_at: Option<i64>,
    left_out_bytes: i64,
}

impl<'a> Run<'a> {
    pub(super) fn of(run: &'a RunRecord) -> Self {
        let usage = &run.usage;
        let counts = [usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.messages];
        Self {
            id: run.id.as_str(),
            ordinal: run.ordinal.into(),
            state: run.state.as_str(),
            error: run.error.as_deref().map(text::store),
            counts: counts.map(u64::cast_signed),
            cost: usage.cost_micro_usd.map(u64::cast_signed),
            process: run.process.as_deref().map(text::store),
            opened_at: run.opened_at.0,
            ended_at: run.ended_at.map(|at| at.0),
            left_out_bytes: run.left_out_bytes.cast_signed(),
        }
    }

    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 13] {
        let [input, output, cached, messages] = &self.counts;
        [
            &self.id,
            &self.ordinal,
            &self.state,
            &self.error,
            input,
            output,
            cached,
            &self.cost,
            messages,
            &self.process,
            &self.opened_at,
            &self.ended_at,
            &self.left_out_bytes,
        ]
    }
}
