//! A running pool: manifest, node factories, supervision, limits and recovery.
//!
//! A [`Manifest`] describes agents and teams; a [`Registry`] knows the node types of a program; a [`Pool`]
//! runs their nodes over a session store.
//!
//! ```
//! use offspring_pool::Manifest;
//!
//! let text = "\
//! agents:
//!   one: {type: command, command: [sh, one.sh]}
//!   two: {type: command, command: [sh, two.sh]}
//! teams:
//!   both: {mode: parallel, members: [one, two]}
//! entry: both
//! limits: {max_active: 2}
//! ";
//! let manifest = Manifest::from_str(text, "pool.yaml".as_ref())?;
//! assert_eq!(manifest.entry().map(|entry| entry.as_str()), Some("both"));
//! assert_eq!(manifest.limits().max_active, 2);
//!
//! let wrong = Manifest::from_str(&text.replace("two]", "tow]"), "pool.yaml".as_ref());
//! let said = wrong.err().map(|error| error.to_string());
//! assert_eq!(
//!     said.as_deref(),
//!     Some("pool.yaml:5:41: member `tow` is no agent and no team of this pool; did you mean `two`?")
//! );
//! # Ok::<(), offspring_pool::ManifestError>(())
//! ```
#![deny(missing_docs)]

pub mod manifest;
mod pool;
mod registry;

pub use manifest::{Limits, Manifest, ManifestError};
pub use pool::{OpenError, Pool, PromptError, check};
pub use registry::Registry;
