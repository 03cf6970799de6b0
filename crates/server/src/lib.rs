//! Serves a pool to clients: the wire of DeepSeek Harness runtimes (`dsh`), and more than that wire has.
//!
//! A [`Server`] stands over one [`Pool`](offspring_pool::Pool) and serves any number of connections, each a
//! pair of byte streams. It translates and keeps no second copy of a tree: what a connection sees of a
//! session is what the log of its tree says, in the log's order, so that two clients, or one that comes back
//! later, see the same.
//!
//! | module | what it holds |
//! |---|---|
//! | [`limits`] | every bound, its default and what happens beyond it |
//! | `server` | the pool and the sessions that are open, shared by all connections |
//! | `prompts` | the queue of a session: one run after another |
//! | `connection` | the loop of one connection: calls start in the order they came |
//! | `methods` | what each request does |
//! | `feed` | follows a tree for a connection |
//! | [`translate`] | what an event of ours is on the wire of the runtimes |
#![deny(missing_docs)]

#[cfg(feature = "rpc")]
mod connection;
#[cfg(feature = "rpc")]
mod feed;
pub mod limits;
#[cfg(feature = "rpc")]
mod methods;
#[cfg(feature = "rpc")]
mod outbox;
#[cfg(feature = "rpc")]
mod prompts;
#[cfg(feature = "rpc")]
mod refusal;
#[cfg(feature = "rpc")]
mod server;
pub mod translate;

pub use limits::ServerLimits;
#[cfg(feature = "rpc")]
pub use server::{Ended, MethodTwice, Server};
