//! Delegation end to end on the store in memory.
use std::sync::Arc;

use futures_util::future::BoxFuture;
use offspring_delegation::{Agent, Delegator, Node, Prompt, RootOptions, Subagent, TaskRequest};
use offspring_protocol::{NodeName, Outcome};
use offspring_sessions::{Answer, MemoryStore, RunContext, RunError, Scope, SessionManager};

struct Echo(NodeName);
impl Agent for Echo {
    fn name(&self) -> &NodeName {
        &self.0
    }
    fn run(self: Arc<Self>, prompt: Prompt, _cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(async move { Ok(format!("{}:{}", self.0, prompt.text).into()) })
    }
}

struct Boss(NodeName, Delegator);
impl Agent for Boss {
    fn name(&self) -> &NodeName {
        &self.0
    }
    fn run(self: Arc<Self>, prompt: Prompt, cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(async move {
            let cx = Arc::new(cx);
            let request = TaskRequest::new(NodeName::new("par").unwrap(), prompt);
            let result = Subagent::new(&self.1).task(&cx, request).await.unwrap();
            Ok(result.output.into())
        })
    }
}

#[tokio::test]
async fn a_boss_asks_a_team_and_the_tree_is_there() {
    let manager = SessionManager::new(Arc::new(MemoryStore::new()), Default::default());
    let delegator = Delegator::new(manager.clone(), Default::default());
    let name = |n: &str| NodeName::new(n).unwrap();
    let a = Node::agent(Echo(name("a")));
    let team = a.clone() & a;
    let Node::Team(team) = team else { panic!() };
    let mut team = (*team).clone();
    team.name = name("par");
    delegator.add(Node::Team(Arc::new(team)));
    let boss = Node::agent(Boss(name("boss"), delegator.clone()));
    let mut heard = manager.subscribe(Scope::All);
    let run = delegator.run_root(boss, "hi".into(), RootOptions::default()).await.unwrap();
    let result = run.result.await.unwrap();
    assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
    assert_eq!(result.answer, "### a (completed)\na:hi\n### a (completed)\na:hi\n");
    assert_eq!(manager.children(&run.session.id).await.unwrap().len(), 2);
    manager.close().await.unwrap();
    let mut seqs = Vec::new();
    while let Some(envelope) = heard.recv().await.unwrap() {
        println!("{}", serde_json::to_string(&*envelope).unwrap());
        seqs.push(envelope.seq);
    }
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
}
