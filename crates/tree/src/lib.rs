//! Who descends from whom: ancestry, routing, lifecycle and usage roll-up of session trees, as pure state machines.
#![deny(missing_docs)]

pub mod lifecycle;
pub mod rollup;
pub mod session_tree;

pub use lifecycle::{Epochs, Runs};
pub use rollup::Rollup;
pub use session_tree::SessionTree;
