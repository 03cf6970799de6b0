//! The high level: a runtime that is ready, its sessions, their turns.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use offspring_protocol::{
    SessionId,
    dsh::{InitializeParams, InitializeResult, ServerInfo, text_block},
};
use serde_json::value::RawValue;

use crate::{
    builder::ClientBuilder,
    client::{Closed, HarnessClient},
    command::RuntimeCommand,
    error::{ClientError, TurnError},
    result::TurnResult,
    subscription::Subscription,
    turn::{Turn, TurnStream},
};

/// A runtime that was started and initialised. Cheap to clone; the runtime ends with the last clone of it, of its
/// client and of its sessions.
#[derive(Debug, Clone)]
pub struct Harness {
    client: HarnessClient,
    server: Arc<Option<ServerInfo>>,
}

impl Harness {
    /// Starts a runtime and initialises it.
    ///
    /// # Errors
    /// [`ClientError`]; then there is no process.
    pub async fn start(
        builder: ClientBuilder,
        command: &RuntimeCommand,
        params: &InitializeParams,
    ) -> Result<Self, ClientError> {
        Self::over(builder.start(command)?, params).await
    }

    /// Initialises the runtime of a client.
    ///
    /// # Errors
    /// [`ClientError`]; the client is closed then.
    pub async fn over(client: HarnessClient, params: &InitializeParams) -> Result<Self, ClientError> {
        let InitializeResult { server_info, .. } = client.initialize(params).await?;
        Ok(Self { client, server: Arc::new(server_info) })
    }

    /// The low level.
    #[must_use]
    pub fn client(&self) -> &HarnessClient {
        &self.client
    }

    /// Who the runtime says it is.
    #[must_use]
    pub fn server_info(&self) -> Option<&ServerInfo> {
        self.server.as_ref().as_ref()
    }

    /// A session by its id. It is made by its first prompt; nothing is sent before.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Session {
        Session { client: self.client.clone(), id }
    }

    /// A session under a new random id.
    ///
    /// # Errors
    /// [`ClientError::BadAnswer`] when the system gives no random bytes.
    pub fn new_session(&self) -> Result<Session, ClientError> {
        let bad =
            |reason: String| ClientError::BadAnswer { method: "a random session id".to_owned(), reason };
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random).map_err(|error| bad(error.to_string()))?;
        let id = format!("session-{:032x}", u128::from_be_bytes(random));
        Ok(self.session(SessionId::new(id).map_err(|error| bad(error.to_string()))?))
    }

    /// Opens a session that the runtime stored.
    ///
    /// # Errors
    /// As [`HarnessClient::resume`].
    pub async fn resume(&self, id: SessionId) -> Result<Session, ClientError> {
        self.client.resume(&id).await?;
        Ok(self.session(id))
    }

    /// Ends the runtime, as [`HarnessClient::close`].
    pub async fn close(&self) -> Closed {
        self.client.close().await
    }
}

impl HarnessClient {
    /// A session by its id, of a runtime that was [initialised](Self::initialize). Nothing is sent.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Session {
        Session { client: self.clone(), id }
    }
}

/// A session of a runtime, and its turns.
#[derive(Debug, Clone)]
pub struct Session {
    client: HarnessClient,
    id: SessionId,
}

impl Session {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// A turn with a text as its prompt: to set what it keeps, who looks on and how far it goes.
    pub fn turn(&self, prompt: &str) -> Turn {
        self.turn_with(vec![text_block(prompt)])
    }

    /// A turn with content blocks of the runtime as its prompt.
    pub fn turn_with(&self, content_blocks: Vec<Box<RawValue>>) -> Turn {
        Turn::new(self.client.clone(), self.id.clone(), content_blocks)
    }

    /// Prompts and waits for the root's next idle: [`Turn::run`].
    ///
    /// # Errors
    /// [`TurnError`].
    pub async fn run(&self, prompt: &str) -> Result<TurnResult, TurnError> {
        self.turn(prompt).run().await
    }

    /// Prompts and waits until the whole tree is at rest: [`Turn::run_tree`].
    ///
    /// # Errors
    /// [`TurnError`].
    pub async fn run_tree(&self, prompt: &str) -> Result<TurnResult, TurnError> {
        self.turn(prompt).run_tree().await
    }

    /// Prompts and gives the notifications as they come: [`Turn::stream`].
    ///
    /// # Errors
    /// [`TurnError`].
    pub async fn stream(&self, prompt: &str) -> Result<TurnStream, TurnError> {
        self.turn(prompt).stream().await
    }

    /// Everything of this session and below it, whatever turn it belongs to.
    pub fn subscribe(&self) -> Subscription {
        self.client.subscribe(&self.id)
    }

    /// Where its tools work.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn working_directory(&self) -> Result<String, ClientError> {
        self.client.working_directory(&self.id).await
    }

    /// Changes where its tools work.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn set_working_directory(&self, path: &str) -> Result<String, ClientError> {
        self.client.set_working_directory(&self.id, path).await
    }
}

impl TurnStream {
    /// As a [`Stream`](futures_util::Stream) that ends with the turn.
    pub fn into_stream(
        self,
    ) -> impl futures_util::Stream<Item = Result<crate::Notification, TurnError>> + Send {
        stream::unfold(self, |mut turn| async move { Some((turn.next().await?, turn)) }).boxed()
    }
}
