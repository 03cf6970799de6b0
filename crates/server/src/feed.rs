//! Follows one tree for one connection.

use offspring_protocol::{MessageId, SessionId, SessionState, dsh, dsh::Status, rpc};
use offspring_sessions::Tail;
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};

use crate::{outbox::Outbox, translate::Translator};

/// Sends what happens in a tree to a connection until it is dropped.
#[derive(Debug)]
pub(crate) struct Feed {
    reached: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a feed knows once it has read what was there before.
pub(crate) type History = oneshot::Receiver<Vec<MessageId>>;

impl Feed {
    /// Follows a tree from its beginning; what has a number up to `known` is read and not sent, so that
    /// events are counted from where they were. Gives with it the prompts that wait there.
    pub(crate) fn start(
        mut tail: Tail,
        root: SessionId,
        known: u64,
        mut translator: Translator,
        outbox: Outbox,
    ) -> (Self, History) {
        let (progress, reached) = watch::channel(0);
        let (tell, history) = oneshot::channel();
        let mut tell = Some(tell);
        let task = tokio::spawn(async move {
            let mut lines = Vec::new();
            loop {
                if let Some(tell) = tell.take_if(|_| tail.cursor() >= known) {
                    // A run that goes on while it is opened: its idle will come, so its running has to.
                    if translator.is_running(&root) {
                        let status = Status { session_id: root.clone(), status: SessionState::Running };
                        lines.extend(rpc::notification(dsh::SESSION_STATUS, &status));
                    }
                    // Whoever asked may be gone.
                    let _ = tell.send(translator.waiting(&root));
                } else {
                    match tail.next().await {
                        Ok(Some(envelope)) => {
                            translator.translate(&envelope, &mut lines);
                            if envelope.seq <= known {
                                lines.clear();
                            }
                        }
                        Ok(None) => return,
                        Err(error) => {
                            return tracing::warn!(%root, %error, "a tree cannot be followed any more");
                        }
                    }
                }
                for line in lines.drain(..) {
                    if outbox.send(line).await.is_err() {
                        return;
                    }
                }
                progress.send_replace(tail.cursor());
            }
        });
        (Self { reached, task }, history)
    }

    /// How far it is: whoever waits for a number on it does not hold the feed.
    pub(crate) fn reached(&self) -> Reached {
        Reached(self.reached.clone())
    }
}

/// How far a feed is.
#[derive(Debug)]
pub(crate) struct Reached(watch::Receiver<u64>);

impl Reached {
    /// Waits until everything up to a number was sent; `false` when that will never be.
    pub(crate) async fn number(mut self, seq: u64) -> bool {
        self.0.wait_for(|reached| *reached >= seq).await.is_ok()
    }
}
