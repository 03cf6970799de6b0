//! A tree's log, page by page: a reader's memory does not grow with the log.

use offspring_protocol::SessionId;
use offspring_sessions::{
    SessionManager, StoreError,
    store::{EventQuery, LogRow},
};

/// Lines asked for at once; a page of long lines is shorter.
const LINES: usize = 1_024;

/// What is left of a log to read.
pub(crate) struct Pages<'a> {
    manager: &'a SessionManager,
    root: SessionId,
    after: u64,
    last: u64,
}

impl<'a> Pages<'a> {
    /// The lines of a tree up to the number `last`.
    pub(crate) fn new(manager: &'a SessionManager, root: &SessionId, last: u64) -> Self {
        Self { manager, root: root.clone(), after: 0, last }
    }

    /// The next lines; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<LogRow>>, StoreError> {
        if self.after >= self.last {
            return Ok(None);
        }
        let query = EventQuery { root: self.root.clone(), session: None, after: self.after, limit: LINES };
        let mut page = self.manager.events(query).await?;
        self.after = page.last().map_or(self.last, |line| line.seq);
        page.retain(|line| line.seq <= self.last);
        Ok(Some(page).filter(|page| !page.is_empty()))
    }
}
