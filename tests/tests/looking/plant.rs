//! Trees in a store, without a program that runs them.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::{path::Path, sync::Arc};

use offspring_protocol::{
    AgentType, Event, MessageId, NodeName, SessionId, event::MessageComplete, event::TextDelta,
};
use offspring_sessions::{
    Answer, ManagerOptions, NewChild, NewRoot, RunError, SessionManager, StartedRun,
    store::sqlite::{SqliteOptions, SqliteStore},
};

/// A store and somebody who writes to it.
pub(crate) struct Plant {
    pub(crate) manager: SessionManager,
    runtime: tokio::runtime::Runtime,
}

impl Plant {
    pub(crate) fn new(db: &Path) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let _inside = runtime.enter();
        let store = SqliteStore::open(db, SqliteOptions::default()).unwrap();
        let manager = SessionManager::new(Arc::new(store), ManagerOptions::default());
        Self { manager, runtime }
    }

    pub(crate) fn root(&self, name: &str, prompt: &str) -> StartedRun {
        let new = NewRoot::new(NodeName::new(name).unwrap(), AgentType::Command);
        self.runtime
            .block_on(async { self.manager.create_root(new).await.unwrap().start(prompt).await.unwrap() })
    }

    pub(crate) fn child(&self, parent: &StartedRun, name: &str, prompt: &str) -> StartedRun {
        let new = NewChild::new(NodeName::new(name).unwrap(), AgentType::Command);
        let child = async { parent.context.create_child(new).await.unwrap().start(prompt).await.unwrap() };
        self.runtime.block_on(child)
    }

    /// Says a text in these pieces, each a line of the log of its own.
    pub(crate) fn says(&self, run: &StartedRun, pieces: &[&str]) {
        self.runtime.block_on(async {
            for piece in pieces {
                let delta = TextDelta { text: (*piece).to_owned() };
                run.context.emit(Event::TextDelta(delta)).await.unwrap();
                // It is answered when it is committed, and what was committed is merged with nothing.
                run.context.record_process("none".to_owned()).await.unwrap();
            }
        });
    }

    pub(crate) fn emits(&self, run: &StartedRun, event: Event) {
        self.runtime.block_on(run.context.emit(event)).unwrap();
    }

    /// Ends a run with this answer.
    pub(crate) fn answers(&self, run: StartedRun, text: &str) -> SessionId {
        let id = run.context.session().id.clone();
        self.runtime.block_on(run.end.finish(Ok(Answer::from(text)))).unwrap();
        id
    }

    pub(crate) fn fails(&self, run: StartedRun, message: &str) -> SessionId {
        let id = run.context.session().id.clone();
        self.runtime.block_on(run.end.finish(Err(RunError::failed("failed", message)))).unwrap();
        id
    }

    /// Nothing of it holds the store any more.
    pub(crate) fn close(self) {
        self.runtime.block_on(self.manager.close()).unwrap();
    }
}

/// A whole message of a run.
pub(crate) fn message(text: &str) -> Event {
    Event::MessageComplete(MessageComplete {
        message_id: MessageId::new("msg_1").unwrap(),
        text: text.to_owned(),
        streamed_bytes: 0,
    })
}
