//! What an agent is that says nothing about itself but its name and its work.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use offspring_delegation::{Agent, Delegator, Node, OnExit, Prompt, RootOptions};
use offspring_protocol::{AgentType, NodeName, Outcome, SessionLimits, SourceType};
use offspring_sessions::{Answer, RunContext, RunError};

struct Bare(NodeName);

impl Agent for Bare {
    fn name(&self) -> &NodeName {
        &self.0
    }
    fn run(self: Arc<Self>, prompt: Prompt, _cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(async move { Ok(prompt.text.to_uppercase().into()) })
    }
}

#[tokio::test]
async fn a_bare_agent_is_native_takes_no_slot_narrows_nothing_and_is_dropped_when_it_is_stopped() {
    let bare = Bare(NodeName::new("bare").unwrap());
    assert_eq!(bare.agent_type(), AgentType::Native);
    assert_eq!(bare.description(), "");
    assert_eq!(bare.model(), None);
    assert_eq!(bare.limits(), SessionLimits::UNBOUNDED);
    assert!(!bare.takes_slot());
    assert_eq!(bare.stop_grace(), Duration::ZERO);
    assert_eq!(bare.on_exit(), OnExit::Wait);

    let node = Node::agent(bare);
    assert_eq!((node.source_type(), node.description()), (SourceType::Agent, ""));
    let delegator = Delegator::detached();
    let run = delegator.run_root(node, "hi".into(), RootOptions::default()).await.unwrap();
    let result = run.result.await.unwrap();
    assert_eq!((result.outcome, result.answer.as_str()), (Outcome::Completed, "HI"));
    assert_eq!(delegator.slots().most_active(), 0);
}
