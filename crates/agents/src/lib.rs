//! Node types: agents that a pool can run.
//!
//! | feature | node type | what it is |
//! |---|---|---|
//! | `command` | `type: command` | a local program: prompt in, stdout streamed, exit status as outcome |
//! | `dsh` | `type: dsh` | a session of a DeepSeek Harness runtime; what it starts becomes part of our tree |
//!
//! A command delegates through the private [`endpoint`] of its pool: any process inside its run may call
//! `offspring task NODE PROMPT` and gets a child of the session it runs in.
//!
//! A pool makes commands from its manifest. This is what it does, without a manifest, a store or a guard:
//!
//! ```
//! # #[cfg(feature = "command")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use offspring_agents::{CommandFactory, CommandSettings};
//! use offspring_delegation::{Delegator, Node, NodeFactory, NodeSpec, RootOptions};
//! use offspring_protocol::{NodeName, SessionLimits};
//!
//! let here = std::env::current_dir()?;
//! let settings: CommandSettings = serde_json::from_str(r#"{"command": ["tr", "a-z", "A-Z"]}"#)?;
//! let spec = NodeSpec {
//!     name: NodeName::new("upper")?,
//!     description: "Writes in capitals.".to_owned(),
//!     workers: Vec::new(),
//!     environment: Vec::new(),
//!     limits: SessionLimits::UNBOUNDED,
//!     manifest_dir: here.clone(),
//!     max_silence: None,
//!     max_output_bytes: 1 << 20,
//!     max_prompt_bytes: 1 << 20,
//! };
//!
//! let delegator = Delegator::detached();
//! let factory = CommandFactory::new(std::env::current_exe()?, None, None);
//! let agent = factory.build(settings, spec, &delegator)?;
//!
//! let options = RootOptions { cwd: here.to_str().map(str::to_owned), ..RootOptions::default() };
//! let run = delegator.run_root(Node::Agent(agent), "hello".into(), options).await?;
//! assert_eq!(run.result.await?.answer, "HELLO");
//! # Ok(()) }
//! # #[cfg(not(feature = "command"))]
//! # fn main() {}
//! ```
#![deny(missing_docs)]

#[cfg(feature = "command")]
pub mod command;
#[cfg(feature = "dsh")]
pub mod dsh;
#[cfg(feature = "command")]
pub mod endpoint;
#[cfg(feature = "command")]
pub mod home;
#[cfg(feature = "command")]
pub mod reap;

#[cfg(feature = "command")]
pub use command::{Command, CommandFactory, CommandSettings, host::CommandHost};
#[cfg(feature = "dsh")]
pub use dsh::{Dsh, DshFactory, DshSettings};
