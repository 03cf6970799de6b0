//! Requests that look at what is stored.

use jsonrpsee::{core::RpcResult, types::Params};
use offspring_protocol::dsh::{
    SessionParams,
    more::{NodeListResult, NodeView, SessionListParams, SessionListResult, SessionView},
};
use offspring_sessions::SessionRecord;

use super::parsed;
use crate::{connection::Connection, refusal};

/// Roots that are listed unless more are asked for, and at most.
const LISTED: usize = 100;
const MOST_LISTED: usize = 1_000;

pub(super) fn view(record: SessionRecord) -> SessionView {
    SessionView { state: record.state(), session: record.data, last_run: record.last_run }
}

pub(super) async fn list(connection: &Connection, params: &Params<'_>) -> RpcResult<SessionListResult> {
    connection.initialized()?;
    let SessionListParams { limit } = parsed(params)?;
    let limit = limit.unwrap_or(LISTED);
    if limit > MOST_LISTED {
        return Err(refusal::invalid(format!("limit {limit} is more than {MOST_LISTED}")));
    }
    let roots = connection.server.pool.manager().roots(limit).await;
    let roots = roots.map_err(|failed| refusal::store(&failed))?;
    Ok(SessionListResult { sessions: roots.into_iter().map(view).collect(), last_seq: None })
}

pub(super) async fn get(connection: &Connection, params: &Params<'_>) -> RpcResult<SessionView> {
    connection.initialized()?;
    let SessionParams { session_id: id } = parsed(params)?;
    connection.in_turn(&id).await;
    let record = connection.server.pool.manager().session(&id).await;
    record.map_err(|failed| refusal::store(&failed))?.map(view).ok_or_else(|| refusal::not_found(&id))
}

pub(super) async fn nodes(connection: &Connection, _: &Params<'_>) -> RpcResult<NodeListResult> {
    connection.initialized()?;
    let pool = &connection.server.pool;
    let entry = pool.entry();
    let nodes = pool.delegator().nodes().into_iter().map(|node| NodeView {
        name: node.name().clone(),
        agent_type: node.agent_type(),
        description: node.description().to_owned(),
        entry: entry == Some(node.name()),
    });
    Ok(NodeListResult { nodes: nodes.collect() })
}
