//! Lines of a log on their way into the table, a column at a time.

use std::borrow::Cow;

use tokio_postgres::types::ToSql;

use super::text;
use crate::store::LogRow;

/// Lines of one tree.
#[derive(Debug, Default)]
pub(super) struct Lines<'a> {
    seq: Vec<i64>,
    session: Vec<i64>,
    run: Vec<Option<i64>>,
    run_id: Vec<Option<&'a str>>,
    at: Vec<i64>,
    late: Vec<bool>,
    kind: Vec<Cow<'a, str>>,
    data: Vec<&'a str>,
}

impl<'a> Lines<'a> {
    /// Writes them; its first parameter is the tree.
    pub(super) const SQL: &'static str = "INSERT INTO events (tree, seq, session, run, run_id, at, late, kind, data) \
        SELECT $1, * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::boolean[], \
        $8::text[], $9::text[])";

    /// `run` is its n, or its id where no such run is stored.
    pub(super) fn push(
        &mut self,
        seq: i64,
        session: i64,
        run: (Option<i64>, Option<&'a str>),
        line: &'a LogRow,
    ) {
        self.seq.push(seq);
        self.session.push(session);
        self.run.push(run.0);
        self.run_id.push(run.1);
        self.at.push(line.at.0);
        self.late.push(line.late);
        self.kind.push(text::store(line.event.kind()));
        self.data.push(line.event.data().get());
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.seq.is_empty()
    }

    pub(super) fn parameters<'p>(&'p self, tree: &'p i64) -> [&'p (dyn ToSql + Sync); 9] {
        [
            tree,
            &self.seq,
            &self.session,
            &self.run,
            &self.run_id,
            &self.at,
            &self.late,
            &self.kind,
            &self.data,
        ]
    }
}
