//! What each request does.

use std::sync::Arc;

use jsonrpsee::{
    Extensions, Methods, ResponsePayload, RpcModule,
    core::{RegisterMethodError, RpcResult},
    types::Params,
};
use offspring_protocol::{
    dsh::{
        INITIALIZE, SESSION_CANCEL, SESSION_PROMPT, SESSION_RESUME, SESSION_WAIT, SHUTDOWN,
        WORKING_DIRECTORY_GET, WORKING_DIRECTORY_SET,
        more::{
            NODE_LIST, SESSION_GET, SESSION_LIST, TREE_EVENT, TREE_GET, TREE_SUBSCRIBE, TREE_UNSUBSCRIBE,
        },
    },
    rpc::code,
};
use serde::de::DeserializeOwned;

use crate::{connection::Connection, refusal};

mod look;
mod runtime;
mod tree;

/// Requests that are answered beyond those of the runtimes, as `initialize` lists them.
const BEYOND: [&str; 7] =
    [SESSION_LIST, SESSION_GET, SESSION_CANCEL, TREE_GET, TREE_SUBSCRIBE, TREE_UNSUBSCRIBE, NODE_LIST];

/// Notifications that are sent to whoever asks for them.
const ASKED_FOR: [&str; 1] = [TREE_EVENT];

/// Every method of the wire.
pub(crate) fn all() -> Result<Methods, RegisterMethodError> {
    let mut module = RpcModule::new(());
    macro_rules! methods {
        ($($name:expr => $handler:path,)*) => {
            $(module.register_async_method($name, |params, _, extensions| async move {
                $handler(&*connection(&extensions)?, &params).await
            })?;)*
        };
    }
    methods! {
        INITIALIZE => runtime::initialize,
        SESSION_PROMPT => runtime::prompt,
        SESSION_RESUME => runtime::resume,
        SESSION_WAIT => runtime::wait,
        SESSION_CANCEL => runtime::cancel,
        WORKING_DIRECTORY_GET => runtime::directory,
        WORKING_DIRECTORY_SET => runtime::set_directory,
        SHUTDOWN => runtime::shutdown,
        SESSION_LIST => look::list,
        SESSION_GET => look::get,
        NODE_LIST => look::nodes,
        TREE_GET => tree::get,
        TREE_UNSUBSCRIBE => tree::unsubscribe,
    }
    module.register_async_method(TREE_SUBSCRIBE, |params, _, extensions| async move {
        match connection(&extensions) {
            Ok(connection) => tree::subscribe(&connection, &params).await,
            Err(none) => ResponsePayload::error(none),
        }
    })?;
    Ok(module.into())
}

/// The connection a call came on.
fn connection(extensions: &Extensions) -> RpcResult<Arc<Connection>> {
    let none = || refusal::error(code::INTERNAL_ERROR, "the call came on no connection");
    extensions.get::<Arc<Connection>>().cloned().ok_or_else(none)
}

/// The params of a call, or what is wrong with them.
fn parsed<T: DeserializeOwned>(params: &Params<'_>) -> RpcResult<T> {
    // A missing list is an empty one: the reader says which member it lacks.
    let text = params.as_str().unwrap_or("{}");
    serde_json::from_str(text).map_err(|error| {
        let mut why = error.to_string();
        if let Some(at) = why.rfind(" at line ") {
            why.truncate(at);
        }
        refusal::invalid(format!("the params of this call are not what it takes: {why}"))
    })
}
