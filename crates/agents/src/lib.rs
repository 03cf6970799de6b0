//! Node types: agents that a pool can run.
//!
//! | feature | node type | what it is |
//! |---|---|---|
//! | `command` | `type: command` | a local program: prompt in, stdout streamed, exit status as outcome |
//!
//! A command delegates through the private [`endpoint`] of its pool: any process inside its run may call
//! `offspring task NODE PROMPT` and gets a child of the session it runs in.
#![deny(missing_docs)]

#[cfg(feature = "command")]
pub mod command;
#[cfg(feature = "command")]
pub mod endpoint;
#[cfg(feature = "command")]
pub mod home;
#[cfg(feature = "command")]
pub mod reap;

#[cfg(feature = "command")]
pub use command::{Command, CommandFactory, CommandSettings, host::CommandHost};
