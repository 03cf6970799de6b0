//! Drives a DeepSeek Harness runtime (`dsh`), or whatever speaks its wire, exact on the whole session tree: who
//! started whom, whose every notification is, when a turn and when its whole tree has ended.
//!
//! # A turn
//!
//! ```no_run
//! use offspring_client::{Harness, HarnessClient, RuntimeCommand};
//! use offspring_protocol::dsh::InitializeParams;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let command = RuntimeCommand::new("dsh").profile("sdk").inherit(["DEEPSEEK_API_KEY", "DSH_HOME"]);
//! let params = InitializeParams {
//!     cwd: std::env::current_dir()?.display().to_string(),
//!     provider: "deepseek-official".into(),
//!     model: "deepseek-v4-flash".into(),
//!     reasoning_effort: None,
//!     max_tokens: None,
//! };
//! let harness = Harness::start(HarnessClient::builder(), &command, &params).await?;
//!
//! let result = harness.new_session()?.run_tree("Look into it, with helpers.").await?;
//! println!("{}", result.final_response.unwrap_or_default());
//! for child in result.tree.children() {
//!     println!("{} below {}: {} runs", child.session, child.parent, child.runs.len());
//! }
//! harness.close().await;
//! # Ok(()) }
//! ```
//!
//! Two ends of a turn, both exact. [`Session::run`] ends at the root's next idle, as every SDK has it: children
//! that run in the background may still be at work. [`Session::run_tree`] ends when nothing below the root is at
//! work any more.
//!
//! | module of the code | what it holds |
//! |---|---|
//! | `builder`, `command` | [`ClientBuilder`], [`RuntimeCommand`]: limits, hooks, the ways to a runtime |
//! | `client` | [`HarnessClient`]: one connection, every call of the wire |
//! | `harness`, `turn` | [`Harness`], [`Session`], [`Turn`], [`TurnStream`] |
//! | `link` | the demultiplexer between the wire and jsonrpsee |
//! | `hub` | routing: subscriptions, turns, what matched nothing (T2–T15) |
//! | `collector`, `result` | what one turn keeps and gives |
//! | `queue`, `subscription` | bounded queues (T11) |
//! | `requests` | requests of the runtime (W6) |
//! | `peer_texts` | what runtimes say in words |
//!
//! # What this crate must not know
//! - No store, no session of ours, no node, no server: it drives a runtime and nothing else.
//! - No text of a peer outside of `peer_texts`.
//! - It prints nothing.
#![deny(missing_docs)]

mod builder;
mod client;
mod collector;
mod command;
mod error;
mod harness;
mod hub;
mod limits;
mod link;
mod notification;
mod peer_texts;
mod queue;
mod requests;
mod result;
mod subscription;
mod turn;
#[cfg(feature = "websocket")]
mod websocket;

pub use builder::ClientBuilder;
pub use client::{ClientDiagnostics, Closed, HarnessClient};
pub use collector::Keep;
pub use command::RuntimeCommand;
pub use error::{ClientError, Gone, GoneHow, RuntimeState, TurnError};
pub use harness::{Harness, Session};
pub use hub::Counts;
pub use limits::Limits;
pub use link::Direction;
pub use notification::Notification;
pub use offspring_process::{Environment, ExitKind, GuardProgram, StderrTail};
pub use offspring_protocol::{MessageId, SessionId, dsh};
pub use offspring_tree::turn::TurnEnd;
pub use peer_texts::PeerError;
pub use queue::SubscriptionEnd;
pub use requests::{IncomingRequest, ReplyError, RequestKind};
pub use result::{ChildReport, ChildRun, TreeReport, TurnResult};
pub use subscription::Subscription;
pub use turn::{Turn, TurnStream};
