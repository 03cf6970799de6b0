//! The requests of the runtimes' wire.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use jsonrpsee::{core::RpcResult, types::Params};
use offspring_delegation::{RootOptions, title};
use offspring_protocol::{
    NodeName, SessionId,
    dsh::{
        InitializeParams, InitializeResult, PromptParams, PromptResult, ServerInfo, SessionParams,
        SetWorkingDirectoryParams, WorkingDirectoryResult,
        more::{CancelResult, Capabilities},
    },
    rpc::code,
};
use offspring_sessions::{CancelAnswer, SessionRecord};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::OwnedMutexGuard;

use super::{ASKED_FOR, BEYOND, parsed};
use crate::{
    connection::{Connection, Open, Slot},
    feed::Feed,
    refusal,
    translate::Translator,
};

/// The provider by which a client names a node as its model.
const NODES: &str = "offspring";

/// `{}`, not `null`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Empty {}

pub(super) async fn initialize(connection: &Connection, params: &Params<'_>) -> RpcResult<InitializeResult> {
    let params: InitializeParams = parsed(params)?;
    if connection.closing.load(Ordering::Relaxed) {
        return Err(refusal::shutting_down());
    }
    // In the runtimes' words.
    if params.max_tokens == Some(0) {
        return Err(refusal::invalid("initialize maxTokens must be a positive safe integer"));
    }
    if params.reasoning_effort.as_deref() == Some("") {
        return Err(refusal::invalid("initialize reasoningEffort must be a non-empty string"));
    }
    let cwd = Path::new(&params.cwd);
    if !cwd.is_absolute() || !cwd.is_dir() {
        return Err(refusal::invalid(format!("cwd {:?} is no directory, or not absolute", params.cwd)));
    }
    if let Some(node) = node_of(&params)? {
        let pool = &connection.server.pool;
        let unknown =
            |error: offspring_pool::PromptError| refusal::error(code::UNKNOWN_NODE, error.to_string());
        pool.node(Some(&node)).map_err(unknown)?;
    }
    connection.initialize(params);
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    Ok(InitializeResult {
        server_info: Some(ServerInfo {
            name: Some("offspring".to_owned()),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        }),
        capabilities: Some(Capabilities { methods: words(&BEYOND), notifications: words(&ASKED_FOR) }),
    })
}

/// The node that a client asks for; the entry of the pool if it names another provider than ours.
fn node_of(params: &InitializeParams) -> RpcResult<Option<NodeName>> {
    if params.provider != NODES {
        return Ok(None);
    }
    NodeName::new(&params.model).map(Some).map_err(|bad| refusal::invalid(bad.to_string()))
}

pub(super) async fn prompt(connection: &Connection, params: &Params<'_>) -> RpcResult<PromptResult> {
    let initialized = connection.initialized()?;
    let PromptParams { session_id: id, content_blocks } = parsed(params)?;
    let text = text_of(&content_blocks)?;
    let slot = connection.slot(&id)?;
    let mut slot = slot.lock().await;
    if slot.0.is_none() {
        match create(connection, &initialized, &id, title(&text)).await {
            Ok(open) => slot.0 = Some(open),
            Err(refused) => {
                connection.forget(&id);
                return Err(refused);
            }
        }
    }
    let Some(open) = &slot.0 else { return Err(refusal::unknown(&id)) };
    let (message_id, seq) = open.queue.accept(&connection.server, text).await?;
    let reached = open.feed.reached();
    drop(slot);
    // The receipt first, then the answer, as the runtimes do it (T13).
    if !reached.number(seq).await {
        return Err(refusal::unreadable());
    }
    Ok(PromptResult { message_id })
}

/// Makes a session under an id that is free, and opens it.
async fn create(
    connection: &Connection,
    initialized: &InitializeParams,
    id: &SessionId,
    title: String,
) -> RpcResult<Open> {
    let server = &connection.server;
    id.check_storable().map_err(|bad| refusal::invalid(bad.to_string()))?;
    if let Some(record) = stored(connection, id).await? {
        let root = &record.data.root_id;
        return Err(if root == id { refusal::exists(id) } else { refusal::is_child(id, root) });
    }
    let title = Some(title).filter(|title| !title.is_empty());
    let cwd = Some(initialized.cwd.clone());
    let options = RootOptions { cwd, title, id: Some(id.clone()), ..RootOptions::default() };
    let made = server.pool.create(node_of(initialized)?.as_ref(), options).await;
    made.map_err(|failed| refusal::prompt(id, &failed))?;
    let queue = server.queue(id);
    queue.is_new().await;
    let tail = server.pool.manager().tail(id, 1);
    let translator = Translator::new(server.limits.message_bytes);
    let (feed, _) = Feed::start(tail, id.clone(), 0, translator, connection.outbox.clone());
    Ok(Open { queue, feed })
}

pub(super) async fn resume(connection: &Connection, params: &Params<'_>) -> RpcResult<Empty> {
    connection.initialized()?;
    let SessionParams { session_id: id } = parsed(params)?;
    let slot = connection.slot(&id)?;
    let mut slot = slot.lock().await;
    if slot.0.is_some() {
        return Err(refusal::open_already(&id));
    }
    match reopen(connection, &id).await {
        Ok(open) => slot.0 = Some(open),
        Err(refused) => {
            connection.forget(&id);
            return Err(refused);
        }
    }
    Ok(Empty {})
}

/// Opens a session that is stored.
async fn reopen(connection: &Connection, id: &SessionId) -> RpcResult<Open> {
    let server = &connection.server;
    let record = stored(connection, id).await?.ok_or_else(|| refusal::not_found(id))?;
    if record.data.root_id != *id {
        return Err(refusal::is_child(id, &record.data.root_id));
    }
    let manager = server.pool.manager();
    manager.own(id).await.map_err(|refused| refusal::refused(id, &refused))?;
    let queue = server.queue(id);
    let known = manager.last_seq(id).await.map_err(|failed| refusal::store(&failed))?;
    let translator = Translator::new(server.limits.message_bytes);
    let tail = manager.tail(id, 1);
    let (feed, history) = Feed::start(tail, id.clone(), known, translator, connection.outbox.clone());
    let waiting = history.await.map_err(|_| refusal::unreadable())?;
    queue.recover(server, waiting).await;
    Ok(Open { queue, feed })
}

pub(super) async fn wait(connection: &Connection, params: &Params<'_>) -> RpcResult<Empty> {
    connection.initialized()?;
    let SessionParams { session_id: id } = parsed(params)?;
    let (queue, reached) = {
        let slot = connection.slot(&id)?;
        let slot = slot.lock().await;
        match &slot.0 {
            Some(open) => (Arc::clone(&open.queue), open.feed.reached()),
            None => {
                connection.forget(&id);
                return Err(refusal::unknown(&id));
            }
        }
    };
    queue.at_rest().await;
    let last = connection.server.pool.manager().last_seq(&id).await;
    // Its answer comes after everything that was said of the tree.
    if reached.number(last.map_err(|failed| refusal::store(&failed))?).await {
        Ok(Empty {})
    } else {
        Err(refusal::unreadable())
    }
}

pub(super) async fn cancel(connection: &Connection, params: &Params<'_>) -> RpcResult<CancelResult> {
    connection.initialized()?;
    let SessionParams { session_id: id } = parsed(params)?;
    let server = &connection.server;
    // After the calls that came before on this connection, and before those that come later.
    let slot = connection.slot(&id)?;
    let turn = slot.lock().await;
    if turn.0.is_none() {
        connection.forget(&id);
    }
    let record = stored(connection, &id).await?.ok_or_else(|| refusal::not_found(&id))?;
    let queue = if record.data.root_id == id { server.open_queue(&id) } else { None };
    // Until the cancel is done nothing of the queue starts.
    let _held = match &queue {
        Some(queue) => Some(queue.cancel_waiting(server).await),
        None => None,
    };
    drop(turn);
    let answer = server.pool.manager().request_cancel(&id).await;
    match answer.map_err(|refused| refusal::refused(&id, &refused))? {
        CancelAnswer::Done(cancelled) => Ok(CancelResult { ended: cancelled.ended, stuck: cancelled.stuck }),
        CancelAnswer::AtRest | CancelAnswer::OwnerGone(_) | CancelAnswer::Owner(_) => {
            Ok(CancelResult { ended: Vec::new(), stuck: Vec::new() })
        }
        CancelAnswer::NoAnswer => Err(refusal::error(
            code::INTERNAL_ERROR,
            "the process that owns it did not answer; the request stands",
        )),
    }
}

pub(super) async fn directory(
    connection: &Connection,
    params: &Params<'_>,
) -> RpcResult<WorkingDirectoryResult> {
    let initialized = connection.initialized()?;
    let SessionParams { session_id: id } = parsed(params)?;
    let _turn = opened(connection, &initialized, &id).await?;
    let record = stored(connection, &id).await?.ok_or_else(|| refusal::not_found(&id))?;
    Ok(WorkingDirectoryResult { cwd: record.data.cwd.unwrap_or_else(|| initialized.cwd.clone()) })
}

pub(super) async fn set_directory(
    connection: &Connection,
    params: &Params<'_>,
) -> RpcResult<WorkingDirectoryResult> {
    let initialized = connection.initialized()?;
    let SetWorkingDirectoryParams { session_id: id, path } = parsed(params)?;
    let _turn = opened(connection, &initialized, &id).await?;
    let record = stored(connection, &id).await?.ok_or_else(|| refusal::not_found(&id))?;
    let from = record.data.cwd.unwrap_or_else(|| initialized.cwd.clone());
    let wanted = Path::new(&from).join(&path);
    let found = std::fs::canonicalize(&wanted).ok().filter(|found| found.is_dir());
    let Some(cwd) = found.and_then(|found| found.to_str().map(str::to_owned)) else {
        return Err(refusal::invalid(format!("working-directory: directory does not exist: {path:?}")));
    };
    let set = connection.server.pool.manager().set_directory(&id, cwd.clone()).await;
    set.map_err(|refused| refusal::refused(&id, &refused))?;
    Ok(WorkingDirectoryResult { cwd })
}

pub(super) async fn shutdown(connection: &Connection, _: &Params<'_>) -> RpcResult<Empty> {
    connection.closing.store(true, Ordering::Relaxed);
    Ok(Empty {})
}

/// Opens a session if it is new, as the runtimes do for whatever names one. The calls on it that come later
/// wait until what this gives is dropped.
async fn opened(
    connection: &Connection,
    initialized: &InitializeParams,
    id: &SessionId,
) -> RpcResult<OwnedMutexGuard<Slot>> {
    let mut slot = connection.slot(id)?.lock_owned().await;
    if slot.0.is_none() {
        match create(connection, initialized, id, String::new()).await {
            Ok(open) => slot.0 = Some(open),
            Err(refused) => {
                connection.forget(id);
                return Err(refused);
            }
        }
    }
    Ok(slot)
}

async fn stored(connection: &Connection, id: &SessionId) -> RpcResult<Option<SessionRecord>> {
    connection.server.pool.manager().session(id).await.map_err(|failed| refusal::store(&failed))
}

/// The text of a prompt's content blocks.
fn text_of(blocks: &[Box<RawValue>]) -> RpcResult<String> {
    #[derive(Deserialize)]
    struct Block {
        #[serde(rename = "type")]
        kind: String,
        #[serde(default)]
        text: Option<String>,
    }
    let mut texts = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let block: Block = serde_json::from_str(block.get())
            .map_err(|error| refusal::invalid(format!("content block {at} is none: {error}")))?;
        match block {
            Block { kind, text: Some(text) } if kind == "text" => texts.push(text),
            Block { kind, .. } => {
                let why =
                    format!("content block {at} is of type {kind:?}: the nodes of this pool take text only");
                return Err(refusal::invalid(why));
            }
        }
    }
    Ok(texts.join("\n"))
}
