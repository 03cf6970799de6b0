//! A model for tests and for trying things by hand: what it answers, its prompt says.
//!
//! It serves a provider's wire format on the loopback, knows nothing and needs no key, so that a real runtime can be
//! driven without a network. [`script`] has the grammar, [`answer`] the behaviour, [`messages`] the one wire
//! format so far (Anthropic Messages with server-sent events, `POST /v1/messages`); another format is another such module.
//!
//! In a test:
//!
//! ```no_run
//! # use offspring_tests::fake_model::FakeModel;
//! let model = FakeModel::start();
//! println!("{}", model.url()); // for the runtime's environment
//! // … prompt "GATE leaf\nSAY done" …
//! model.wait_at("leaf", 1); // a request stands at the gate
//! model.open("leaf"); // and is answered
//! ```
//!
//! By hand: `cargo run -p offspring-tests --bin fake-model -- --port 8099`; `POST /gate/NAME` opens a gate.

pub mod answer;
mod gates;
pub mod messages;
pub mod script;
mod server;

pub use gates::GATE_BOUND;
pub use server::{Asked, FakeModel};
