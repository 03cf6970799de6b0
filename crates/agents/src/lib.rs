//! Node types: agents that a pool can run.
#![deny(missing_docs)]
