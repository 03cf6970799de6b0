//! Requests about a whole tree.

use jsonrpsee::{
    ResponsePayload,
    core::{RpcResult, server::MethodResponseFuture},
    types::Params,
};
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
use tokio::sync::oneshot;

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

/// Its first event is sent when its answer is: before that a client knows no such subscription.
pub(super) async fn subscribe(
    connection: &Connection,
    params: &Params<'_>,
) -> ResponsePayload<'static, SubscribeResult> {
    let (tail, below) = match reader(connection, params).await {
        Ok(reader) => reader,
        Err(refused) => return ResponsePayload::error(refused),
    };
    let outbox = connection.outbox.clone();
    let (answer, answered) = oneshot::channel::<MethodResponseFuture>();
    let subscribed = connection.subscribe(|number| {
        let sending = async move {
            // Its sender only goes with the answer.
            if let Ok(answered) = answered.await
                && answered.await.is_ok()
            {
                send(tail, below, number, outbox).await;
            }
        };
        tokio::spawn(sending).abort_handle()
    });
    match subscribed {
        Ok(subscription) => {
            let (response, queued) =
                ResponsePayload::success(SubscribeResult { subscription }).notify_on_completion();
            // The task waits for it.
            let _ = answer.send(queued);
            response
        }
        Err(refused) => ResponsePayload::error(refused),
    }
}

/// What a subscription reads: its tree, and the session below which, unless all of it.
async fn reader(connection: &Connection, params: &Params<'_>) -> RpcResult<(Tail, Option<SessionId>)> {
    connection.initialized()?;
    let SubscribeParams { session_id: id, from_seq } = parsed(params)?;
    let root = root_of(connection, &id).await?;
    let tail = connection.server.pool.manager().tail(&root, from_seq.unwrap_or(1));
    Ok((tail, (id != root).then_some(id)))
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
    connection.in_turn(id).await;
    let record = connection.server.pool.manager().session(id).await;
    let record = record.map_err(|failed| refusal::store(&failed))?.ok_or_else(|| refusal::not_found(id))?;
    Ok(record.data.root_id)
}
