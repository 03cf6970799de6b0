//! Requests about a whole tree.

use jsonrpsee::{core::RpcResult, types::Params};
use offspring_protocol::{
    SessionId,
    dsh::{
        SessionParams,
        more::{
            SessionListResult, SubscribeParams, SubscribeResult, TREE_EVENT, TreeEvent, UnsubscribeParams,
        },
    },
    rpc,
};
use offspring_sessions::Tail;

use super::{look::view, parsed, runtime::Empty};
use crate::{connection::Connection, outbox::Outbox, refusal};

pub(super) async fn get(connection: &Connection, params: &Params<'_>) -> RpcResult<SessionListResult> {
    connection.initialized()?;
    let SessionParams { session_id: id } = parsed(params)?;
    let manager = connection.server.pool.manager();
    // Before the rows: whoever subscribes from here on may hear of a row twice and misses none.
    let root = root_of(connection, &id).await?;
    let last_seq = manager.last_seq(&root).await.map_err(|failed| refusal::store(&failed))?;
    let sessions = manager.subtree(&id).await.map_err(|failed| refusal::store(&failed))?;
    Ok(SessionListResult { sessions: sessions.into_iter().map(view).collect(), last_seq: Some(last_seq) })
}

pub(super) async fn subscribe(connection: &Connection, params: &Params<'_>) -> RpcResult<SubscribeResult> {
    connection.initialized()?;
    let SubscribeParams { session_id: id, from_seq } = parsed(params)?;
    let root = root_of(connection, &id).await?;
    let tail = connection.server.pool.manager().tail(&root, from_seq.unwrap_or(1));
    let below = (id != root).then_some(id);
    let outbox = connection.outbox.clone();
    let subscription =
        connection.subscribe(|number| tokio::spawn(send(tail, below, number, outbox)).abort_handle())?;
    Ok(SubscribeResult { subscription })
}

/// Sends a tree, or what is below one session of it, for as long as the connection lives.
async fn send(mut tail: Tail, below: Option<SessionId>, subscription: u64, outbox: Outbox) {
    loop {
        let envelope = match tail.next().await {
            Ok(Some(envelope)) => envelope,
            Ok(None) => return,
            Err(error) => return tracing::warn!(%error, "a tree cannot be followed any more"),
        };
        if below.as_ref().is_some_and(|id| !envelope.session.path.contains(id)) {
            continue;
        }
        let line = rpc::notification(TREE_EVENT, &TreeEvent { subscription, envelope: &envelope });
        let Ok(line) = line else { return };
        if outbox.send(line).await.is_err() {
            return;
        }
    }
}

pub(super) async fn unsubscribe(connection: &Connection, params: &Params<'_>) -> RpcResult<Empty> {
    connection.initialized()?;
    let UnsubscribeParams { subscription } = parsed(params)?;
    if connection.unsubscribe(subscription) {
        Ok(Empty {})
    } else {
        Err(refusal::invalid(format!("this connection has no subscription {subscription}")))
    }
}

async fn root_of(connection: &Connection, id: &SessionId) -> RpcResult<SessionId> {
    let record = connection.server.pool.manager().session(id).await;
    let record = record.map_err(|failed| refusal::store(&failed))?.ok_or_else(|| refusal::not_found(id))?;
    Ok(record.data.root_id)
}
