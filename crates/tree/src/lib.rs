//! Who descends from whom: ancestry, routing, lifecycle and usage roll-up of session trees, as pure state machines.
//!
//! Everything here takes `&mut self` and plain values and gives plain values back. There is no clock, no
//! randomness, no I/O, no async and no JSON, so that every rule can be tested by calling a function. The
//! driver around these machines feeds them in the order of the wire or of the log.
//!
//! | module | what it holds | rules |
//! |---|---|---|
//! | [`session_tree`] | what we stored: our ids, a parent set once, no cycle | L3, L4, L14 |
//! | [`lifecycle`] | the runs of a session, pending → running → ended once | L12 |
//! | [`rollup`] | usage, own and of a subtree, each message once | L15 |
//! | [`ancestry`] | what one peer's wire says: latest start wins, cycles possible | T1–T4, T7, T8, T14 |
//! | [`router`] | which subscriptions a notification belongs to | T2–T8, T10, T15 |
//! | [`turn`] | one turn of a root over what is routed to it | T12, T13 |
//! | [`activity`] | what of a peer's tree is still at work | T4, T7 |
//!
//! Two ancestries, never mixed: [`SessionTree`] is ours and acyclic; [`Ancestry`] is a peer's, in the peer's
//! ids, and believed only as far as routing goes.
//!
//! # Routing what a peer says
//!
//! ```
//! use offspring_protocol::SessionId;
//! use offspring_tree::{Notification, Router};
//!
//! let mut router = Router::default();
//! let subscription = router.subscribe(&SessionId::new("root").unwrap());
//!
//! router.route(Notification::Started { parent: "root", child: "child" });
//! router.route(Notification::Started { parent: "child", child: "grandchild" });
//!
//! let route = router.route(Notification::Session { session: "grandchild" });
//! assert_eq!(route.matched(), [subscription]);
//! assert_eq!(route.cost().hops, 3);
//! ```
//!
//! # Keeping our own tree
//!
//! ```
//! use offspring_protocol::{MessageId, SessionId, Usage};
//! use offspring_tree::{Rollup, SessionTree};
//!
//! let [root, child] = ["root", "child"].map(|id| SessionId::new(id).unwrap());
//! let mut tree = SessionTree::default();
//! tree.insert(root.clone(), None)?;
//! tree.insert(child.clone(), Some(&root))?;
//!
//! let mut rollup = Rollup::default();
//! rollup.record(&child, &MessageId::new("m").unwrap(), Usage::message(3, 4));
//! assert_eq!(rollup.subtree(&tree, &root).total_tokens(), 7);
//! # Ok::<(), offspring_tree::session_tree::InsertError>(())
//! ```
#![deny(missing_docs)]

pub mod activity;
pub mod ancestry;
pub mod lifecycle;
pub mod rollup;
pub mod router;
pub mod session_tree;
pub mod turn;

pub use activity::Activity;
pub use ancestry::Ancestry;
pub use lifecycle::{Epochs, Runs};
pub use rollup::Rollup;
pub use router::{Notification, Route, Router, SubscriptionKey};
pub use session_tree::SessionTree;
pub use turn::Turn;
