//! What happens to a session outside of its runs: prompts that wait for one, and where it works.

use std::{path::Path, sync::Arc};

use offspring_protocol::{
    Event, MessageId, SessionData, SessionId,
    event::{PromptDropped, PromptReceived},
};
use smallvec::{SmallVec, smallvec};
use tokio::sync::oneshot;

use crate::{
    error::Refused,
    live::LiveTree,
    manager::SessionManager,
    rows::check_directory,
    store::{StoreError, TreeQuery, Write},
    writer::{Line, Op, Then},
};

impl SessionManager {
    /// Stores a prompt before the run that answers it: what was taken in is found after a crash, also when
    /// it had to wait. Gives a number of the log at which it is there.
    ///
    /// # Errors
    /// [`Refused`]: unknown, or owned by another process that lives.
    pub async fn receive_prompt(
        &self,
        session: &SessionId,
        prompt_id: MessageId,
        text: String,
    ) -> Result<u64, Refused> {
        self.note(session, Event::PromptReceived(PromptReceived { prompt_id, text })).await
    }

    /// Says that a prompt which was taken in gets no run, and why. Gives a number of the log at which it is
    /// there.
    ///
    /// # Errors
    /// As [`receive_prompt`](Self::receive_prompt).
    pub async fn drop_prompt(&self, session: &SessionId, dropped: PromptDropped) -> Result<u64, Refused> {
        self.note(session, Event::PromptDropped(dropped)).await
    }

    /// Changes where a session works, from its next run on. Its children keep what they inherited (rule L3).
    ///
    /// # Errors
    /// [`Refused`]: unknown, no such directory, or owned by another process that lives.
    pub async fn set_directory(&self, session: &SessionId, cwd: String) -> Result<(), Refused> {
        check_directory(&cwd)?;
        let tree = self.tree_for_writing(session).await?;
        let project_id = self.project_of(Path::new(&cwd)).await;
        let changed = {
            let mut state = tree.state();
            let unknown = || Refused::UnknownSession { id: session.clone() };
            let member = state.members.get_mut(session).ok_or_else(unknown)?;
            let changed =
                SessionData { cwd: Some(cwd), project_id: Some(project_id), ..(*member.data).clone() };
            member.data = Arc::new(changed);
            Arc::clone(&member.data)
        };
        self.write(&tree, smallvec![Write::Update(changed)], SmallVec::new()).await?;
        Ok(())
    }

    /// Becomes the owner of a session's tree, if no process that lives is.
    ///
    /// # Errors
    /// [`Refused`]: unknown, or owned by another process that lives.
    pub async fn own(&self, session: &SessionId) -> Result<(), Refused> {
        self.refuse_when_closing()?;
        self.tree_for_writing(session).await.map(drop)
    }

    /// The number of the last committed line of a session's tree; 0 for no such tree.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn last_seq(&self, root: &SessionId) -> Result<u64, StoreError> {
        let trees = self.inner.store.trees(TreeQuery::Root(root.clone())).await?;
        Ok(trees.first().map_or(0, |tree| tree.last_seq))
    }

    async fn note(&self, session: &SessionId, event: Event) -> Result<u64, Refused> {
        self.refuse_when_closing()?;
        let tree = self.tree_for_writing(session).await?;
        let info = {
            let state = tree.state();
            Arc::clone(&state.member(session)?.info)
        };
        let line = Line::new(&info, None, event);
        Ok(self.write(&tree, SmallVec::new(), smallvec![line]).await?)
    }

    async fn write(
        &self,
        tree: &LiveTree,
        writes: SmallVec<[Write; 2]>,
        lines: SmallVec<[Line; 2]>,
    ) -> Result<u64, StoreError> {
        let room = match lines.first() {
            Some(line) => line.room(&tree.room).await,
            None => None,
        };
        let (ack, committed) = oneshot::channel();
        let op = Op { writes, lines, then: Then::Tell(ack), room, ..Op::default() };
        tree.writer.send(op).await.map_err(|_| StoreError::Closed)?;
        committed.await.unwrap_or(Err(StoreError::Closed))
    }
}
