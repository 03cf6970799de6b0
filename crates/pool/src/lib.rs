//! A running pool: manifest, node factories, supervision, limits and recovery.
//!
//! A [`Manifest`] describes agents and teams; a [`Registry`] knows the node types of a program; a [`Pool`]
//! runs their nodes over a session store.
#![deny(missing_docs)]

pub mod manifest;
mod pool;
mod registry;

pub use manifest::{Limits, Manifest, ManifestError};
pub use pool::{OpenError, Pool, PromptError, check};
pub use registry::Registry;
