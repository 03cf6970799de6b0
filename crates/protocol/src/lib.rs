//! The words of a session tree: ids, events, session data and wire types, without any I/O.
#![deny(missing_docs)]
