//! Who waits for the answer to which request (rule W5).

use std::collections::{HashMap, hash_map::Entry};

use offspring_protocol::rpc::Id;

/// Requests without an answer, each with what its sender left to be found by: a channel, a name, anything.
///
/// Bounded by the limit it is made with.
///
/// ```
/// use offspring_protocol::rpc::Id;
/// use offspring_transport::{InsertError, Pending};
///
/// let mut pending = Pending::with_limit(16);
/// pending.insert(Id::from(1), "first")?;
/// let refused = pending.insert(Id::from(1), "second");
/// assert!(matches!(refused, Err(InsertError::Taken { value: "second", .. })));
/// assert_eq!(pending.take(&Id::from(1)).ok(), Some("first"));
/// assert_eq!(pending.take(&Id::from(1)).unwrap_err().to_string(), "nobody waits for the answer to request 1");
/// # Ok::<(), InsertError<&str>>(())
/// ```
#[derive(Debug)]
pub struct Pending<T> {
    waiting: HashMap<Id, T>,
    limit: usize,
}

/// Why a request cannot wait. What was to be inserted comes back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError<T> {
    /// The id is pending already; that request stays as it is.
    #[error("failed to register request {id}: a request with this id is already waiting for its answer")]
    Taken {
        /// The id.
        id: Id,
        /// What was to be inserted.
        value: T,
    },
    /// As many requests wait as may.
    #[error("failed to register request {id}: {limit} requests are already waiting for their answers")]
    Full {
        /// The id.
        id: Id,
        /// What was to be inserted.
        value: T,
        /// How many may wait.
        limit: usize,
    },
}

/// An answer that nobody waits for: a diagnostic, never fatal (rule W5).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nobody waits for the answer to request {id}")]
pub struct UnknownId {
    /// The id it carries.
    pub id: Id,
}

impl<T> Pending<T> {
    /// At most `limit` requests wait at a time; one more is refused with [`InsertError::Full`].
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self { waiting: HashMap::new(), limit }
    }

    /// Registers a request before it is sent.
    ///
    /// # Errors
    /// [`InsertError::Taken`] and [`InsertError::Full`], with `value`; nothing is overwritten (rule W5).
    pub fn insert(&mut self, id: Id, value: T) -> Result<(), InsertError<T>> {
        let (len, limit) = (self.waiting.len(), self.limit);
        match self.waiting.entry(id) {
            Entry::Occupied(entry) => Err(InsertError::Taken { id: entry.key().clone(), value }),
            Entry::Vacant(entry) if len >= limit => {
                Err(InsertError::Full { id: entry.into_key(), value, limit })
            }
            Entry::Vacant(entry) => {
                entry.insert(value);
                Ok(())
            }
        }
    }

    /// Takes out the request that an answer belongs to, or one that was given up.
    ///
    /// # Errors
    /// [`UnknownId`] when nobody waits for it.
    pub fn take(&mut self, id: &Id) -> Result<T, UnknownId> {
        self.waiting.remove(id).ok_or_else(|| UnknownId { id: id.clone() })
    }

    /// Takes out everything, in no order: the peer is gone.
    pub fn take_all(&mut self) -> impl Iterator<Item = (Id, T)> + use<T> {
        std::mem::take(&mut self.waiting).into_iter()
    }

    /// How many requests wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w5_an_id_that_is_pending_is_refused_and_the_first_waiter_stays() {
        let mut pending = Pending::with_limit(3);
        assert!(pending.is_empty());
        pending.insert(Id::from(1), "a").unwrap();
        pending.insert(Id::from("1"), "b").unwrap();
        let refused = pending.insert(Id::from(1), "c").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "failed to register request 1: a request with this id is already waiting for its answer"
        );
        assert_eq!(refused, InsertError::Taken { id: Id::from(1), value: "c" });
        assert_eq!((pending.len(), pending.is_empty()), (2, false));
        assert_eq!(pending.take(&Id::from(1)), Ok("a"));
        assert_eq!(pending.take(&Id::from("1")), Ok("b"));
        assert_eq!((pending.len(), pending.is_empty()), (0, true));
        pending.insert(Id::from(1), "again").unwrap();
    }

    #[test]
    fn w5_an_answer_nobody_waits_for_is_a_value() {
        let mut pending = Pending::<()>::with_limit(1);
        assert_eq!(pending.take(&Id::Null), Err(UnknownId { id: Id::Null }));
        pending.insert(Id::from(1), ()).unwrap();
        assert_eq!(pending.take(&Id::from("1")), Err(UnknownId { id: Id::from("1") }));
        assert_eq!(pending.take(&Id::from(1)), Ok(()));
        assert_eq!(pending.take(&Id::from(1)), Err(UnknownId { id: Id::from(1) }));
    }

    #[test]
    fn w5_the_table_is_bounded_and_a_taken_id_is_named_before_a_full_table() {
        let mut pending = Pending::with_limit(2);
        pending.insert(Id::from(1), 'a').unwrap();
        pending.insert(Id::from(2), 'b').unwrap();
        assert_eq!(
            pending.insert(Id::from(3), 'c'),
            Err(InsertError::Full { id: Id::from(3), value: 'c', limit: 2 })
        );
        assert_eq!(pending.insert(Id::from(2), 'd'), Err(InsertError::Taken { id: Id::from(2), value: 'd' }));
        let mut all: Vec<_> = pending.take_all().map(|(_, value)| value).collect();
        all.sort_unstable();
        assert_eq!((all, pending.len()), (vec!['a', 'b'], 0));
        pending.insert(Id::from(3), 'c').unwrap();
    }
}
