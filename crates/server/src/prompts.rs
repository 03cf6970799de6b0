//! The prompts of a root: taken in and stored at once, answered one run after another.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jsonrpsee::types::ErrorObjectOwned;
use offspring_delegation::Prompt;
use offspring_protocol::{MessageId, SessionId, event::PromptDropped};
use offspring_sessions::ids;
use tokio::sync::{MutexGuard as MutexGuardOf, watch};

use crate::{refusal, server::Inner};

/// The queue of one root, shared by every connection that has it open.
#[derive(Debug)]
pub(crate) struct Queue {
    root: SessionId,
    /// Prompts that were taken in and are not over.
    open: watch::Sender<usize>,
    waiting: Mutex<Waiting>,
    /// Held while a prompt is stored, so that the log has them in the order in which they will run.
    accepting: tokio::sync::Mutex<()>,
    /// Held from where a prompt leaves the queue until its run is open: a cancel finds it before or after.
    starting: tokio::sync::Mutex<()>,
    /// Whether prompts that a process which is gone took in were looked after.
    recovered: tokio::sync::Mutex<bool>,
}

#[derive(Debug, Default)]
struct Waiting {
    prompts: VecDeque<Prompt>,
    working: bool,
    /// The server closes: nothing more is taken in.
    closed: bool,
}

impl Queue {
    pub(crate) fn new(root: SessionId) -> Self {
        Self {
            root,
            open: watch::Sender::new(0),
            waiting: Mutex::default(),
            accepting: tokio::sync::Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            recovered: tokio::sync::Mutex::default(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a prompt; a run answers it as soon as those before it are over. Gives its name and a number of
    /// the log at which its receipt is there.
    pub(crate) async fn accept(
        self: &Arc<Self>,
        server: &Arc<Inner>,
        text: String,
    ) -> Result<(MessageId, u64), ErrorObjectOwned> {
        // A task of its own: a client that goes away in the middle must not leave a prompt behind that is
        // stored and that nobody runs.
        let accepting = Arc::clone(self).store(Arc::clone(server), text);
        tokio::spawn(accepting).await.unwrap_or_else(|_| Err(refusal::shutting_down()))
    }

    async fn store(
        self: Arc<Self>,
        server: Arc<Inner>,
        text: String,
    ) -> Result<(MessageId, u64), ErrorObjectOwned> {
        let _one = self.accepting.lock().await;
        if self.waiting().closed {
            return Err(refusal::shutting_down());
        }
        let max = server.limits.queued_prompts;
        if self.waiting().prompts.len() >= max {
            let what = format!("{max} prompts of the session {} wait already", self.root);
            return Err(refusal::limit(&what, max, "queued_prompts"));
        }
        let id = ids::message();
        let prompt = Prompt { id: Some(id.clone()), ..text.into() };
        let checked = server.pool.check_prompt(&self.root, &prompt).await;
        checked.map_err(|failed| refusal::prompt(&self.root, &failed))?;
        let manager = server.pool.manager();
        let received = manager.receive_prompt(&self.root, id.clone(), prompt.text.as_ref().to_owned()).await;
        let seq = received.map_err(|refused| refusal::refused(&self.root, &refused))?;
        self.open.send_modify(|open| *open += 1);
        let start = {
            let mut waiting = self.waiting();
            waiting.prompts.push_back(prompt);
            !std::mem::replace(&mut waiting.working, true)
        };
        if start {
            tokio::spawn(Arc::clone(&self).work(server));
        }
        Ok((id, seq))
    }

    /// One run after another, until nothing waits.
    async fn work(self: Arc<Self>, server: Arc<Inner>) {
        loop {
            let starting = self.starting.lock().await;
            let prompt = {
                let mut waiting = self.waiting();
                match waiting.prompts.pop_front() {
                    Some(prompt) => prompt,
                    None => {
                        waiting.working = false;
                        return;
                    }
                }
            };
            let id = prompt.id.clone();
            let started = server.pool.prompt(&self.root, prompt).await;
            drop(starting);
            match started {
                // How it ended is in the log.
                Ok(run) => drop(run.result.await),
                Err(failed) => self.drop_prompt(&server, id, "refused", failed.to_string()).await,
            }
            self.over();
        }
    }

    fn over(&self) {
        self.open.send_modify(|open| *open = open.saturating_sub(1));
    }

    async fn drop_prompt(&self, server: &Inner, id: Option<MessageId>, code: &str, message: String) {
        let Some(prompt_id) = id else { return };
        let dropped = PromptDropped { prompt_id, message, code: code.to_owned() };
        if let Err(error) = server.pool.manager().drop_prompt(&self.root, dropped).await {
            tracing::warn!(root = %self.root, %error, "that a prompt gets no run could not be stored");
        }
    }

    /// Drops what waits and keeps what comes from starting until the guard that it gives is dropped, for a
    /// cancel (rule L14): what was taken in before is dropped or has an open run, what is taken in after
    /// starts anew.
    pub(crate) async fn cancel_waiting(&self, server: &Inner) -> MutexGuardOf<'_, ()> {
        let starting = self.starting.lock().await;
        let _one = self.accepting.lock().await;
        self.drop_waiting(server, "cancelled", "cancelled before it started").await;
        starting
    }

    /// Takes nothing more in and drops what waits, because the server closes.
    pub(crate) async fn close(&self, server: &Inner) {
        let _one = self.accepting.lock().await;
        self.waiting().closed = true;
        self.drop_waiting(server, "closing", "the server closed before its run began").await;
    }

    async fn drop_waiting(&self, server: &Inner, code: &str, message: &str) {
        let dropped = std::mem::take(&mut self.waiting().prompts);
        for prompt in dropped {
            self.drop_prompt(server, prompt.id, code, message.to_owned()).await;
            self.over();
        }
    }

    /// Says of the prompts that a process which is gone took in and did not run that they get no run
    /// (rule L13). Once: what this process takes in later is its own.
    pub(crate) async fn recover(&self, server: &Inner, waiting: Vec<MessageId>) {
        let mut recovered = self.recovered.lock().await;
        if std::mem::replace(&mut *recovered, true) {
            return;
        }
        for id in waiting {
            let message = "the process that had taken it in ended before its run began".to_owned();
            self.drop_prompt(server, Some(id), "owner_lost", message).await;
        }
    }

    /// Nothing was there before: there is nothing to look after.
    pub(crate) async fn is_new(&self) {
        *self.recovered.lock().await = true;
    }

    /// Waits until every prompt that was taken in is over, and with it the whole tree (rule L19).
    pub(crate) async fn at_rest(&self) {
        // The sender is ours and lives.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }
}
