//! Who remembers: the session manager, the ordered log of a tree, and the stores.
#![deny(missing_docs)]

pub mod ids;
pub mod store;
