//! Teams: members at once or one after another, as children of the calling session (rules L6, L11).

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::{BoxFuture, join_all};
use offspring_protocol::{Outcome, ToolCallId, control::MemberResult, event::SpawnMechanism};
use offspring_sessions::{Answer, NewChild, Refused, RunContext, RunError};
use tokio::task::unconstrained;

use crate::{
    delegator::Delegator,
    drive::{self, Driven},
    node::{Node, Prompt, Team, TeamRun},
    recall::TAKEN_FROM,
    tasks::Task,
};

/// How children are made: by which tool call, for which task.
#[derive(Debug, Clone, Default)]
pub(crate) struct How {
    /// Hears of each session as soon as it is stored; once it is cancelled, none is made any more.
    pub(crate) task: Option<Arc<Task>>,
    pub(crate) tool_call: Option<ToolCallId>,
    pub(crate) description: String,
    pub(crate) cwd: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
}

impl How {
    fn is_cancelled(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.cancelled.is_cancelled())
    }
}

/// What the members gave, in member order (rule L11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamResult {
    /// One entry per member that was asked.
    pub members: Vec<MemberResult>,
    /// What the team as a whole gives.
    pub output: String,
    /// How the team as a whole ended.
    pub outcome: Outcome,
    /// What went wrong, when it did not complete.
    pub error: Option<String>,
}

impl TeamResult {
    pub(crate) fn into_answer(self) -> Result<Answer, RunError> {
        match self.outcome {
            Outcome::Completed => Ok(self.output.into()),
            Outcome::Cancelled => Err(RunError::interrupted("cancelled", "cancelled")),
            Outcome::Failed | Outcome::Interrupted => {
                Err(RunError::failed("members_failed", self.error.unwrap_or_default()))
            }
        }
    }

    fn alone(member: MemberResult) -> Self {
        let (output, outcome, error) = (member.output.clone(), member.outcome, member.error.clone());
        Self { members: vec![member], output, outcome, error }
    }
}

/// Runs a node below `caller`: an agent as one child, a team's members each as a child (rule L6).
pub(crate) fn run<'a>(
    delegator: &'a Delegator,
    caller: &'a RunContext,
    node: &'a Node,
    prompt: Prompt,
    how: &'a How,
) -> BoxFuture<'a, Result<TeamResult, Refused>> {
    Box::pin(async move {
        match node {
            Node::Agent(_) => {
                let child = start(delegator, caller, node, prompt, SpawnMechanism::Task, how).await?;
                Ok(TeamResult::alone(drive::finished(child).await))
            }
            Node::Team(team) => parallel(delegator, caller, team, &prompt, how).await,
            Node::TeamRun(run) => sequential(delegator, caller, run, prompt, how).await,
        }
    })
}

/// One member as a child; a team that is a member gets a row of its own (L6).
async fn start(
    delegator: &Delegator,
    caller: &RunContext,
    node: &Node,
    prompt: Prompt,
    mechanism: SpawnMechanism,
    how: &How,
) -> Result<Driven, Refused> {
    if how.is_cancelled() {
        return Err(Refused::Cancelled);
    }
    let mut new = NewChild::new(node.name().clone(), node.agent_type());
    new.source_type = node.source_type();
    new.mechanism = mechanism;
    new.description.clone_from(&how.description);
    new.tool_call.clone_from(&how.tool_call);
    new.task = how.task.as_ref().map(|task| task.key().clone());
    new.cwd.clone_from(&how.cwd);
    new.metadata.clone_from(&how.metadata);
    // Nobody's word but ours.
    new.metadata.remove(TAKEN_FROM);
    if let Node::Agent(agent) = node {
        new.model = agent.model().map(str::to_owned);
        new.limits = agent.limits();
    }
    let recall = delegator.recall_of(&caller.session().root);
    let claim = recall.and_then(|recall| recall.claim(caller, node, how.cwd.as_deref(), &prompt));
    let mut node = node.clone();
    if let Some((claim, stored)) = claim.as_ref().and_then(|claim| Some((claim, claim.result()?))) {
        new.metadata.insert(TAKEN_FROM.to_owned(), stored.session.to_string());
        node = claim.taken(stored);
    }
    let child = caller.create_child(new).await?;
    if let Some(claim) = claim {
        claim.keep(&child.session().id);
    }
    let driven = drive::child(delegator.clone(), child, node, prompt);
    if let Some(task) = &how.task {
        task.made(driven.session.id.clone());
    }
    Ok(driven)
}

/// Refused because everything above is being stopped, not because of this one.
fn is_stopping(refused: &Refused) -> bool {
    matches!(refused, Refused::Cancelled | Refused::Closing)
}

fn refused(node: &Node, refused: &Refused) -> MemberResult {
    MemberResult {
        node: node.name().clone(),
        session: None,
        outcome: if is_stopping(refused) { Outcome::Cancelled } else { Outcome::Failed },
        output: String::new(),
        error: Some(refused.to_string()),
    }
}

fn with_shared(shared: Option<&str>, prompt: &Prompt) -> Prompt {
    match shared {
        Some(shared) => Prompt::from(format!("{shared}\n\n{}", prompt.text)),
        None => prompt.clone(),
    }
}

async fn parallel(
    delegator: &Delegator,
    caller: &RunContext,
    team: &Team,
    prompt: &Prompt,
    how: &How,
) -> Result<TeamResult, Refused> {
    let prompt = with_shared(team.shared_prompt.as_deref(), prompt);
    // All are made before any is waited for, and in member order.
    let starts = team
        .members
        .iter()
        .map(|member| start(delegator, caller, member, prompt.clone(), SpawnMechanism::Spawn, how));
    // Unconstrained: when its budget is used up, the runtime would let those behind go first, and the rows
    // would not be in member order.
    let started = unconstrained(join_all(starts)).await;
    if let [Err(first), ..] = started.as_slice()
        && started.iter().all(Result::is_err)
    {
        // Nothing exists: the whole delegation is refused (L5).
        return Err(first.clone());
    }
    let ends = team.members.iter().zip(started).map(|(member, driven)| async move {
        match driven {
            Ok(driven) => drive::finished(driven).await,
            Err(error) => refused(member, &error),
        }
    });
    Ok(parallel_result(join_all(ends).await))
}

/// Fails only when every member failed; the output names each member, in order (L11).
fn parallel_result(members: Vec<MemberResult>) -> TeamResult {
    let completed = members.iter().filter(|member| member.outcome == Outcome::Completed).count();
    let outcome = if completed > 0 || members.is_empty() {
        Outcome::Completed
    } else if members.iter().all(|member| member.outcome == Outcome::Cancelled) {
        Outcome::Cancelled
    } else {
        Outcome::Failed
    };
    let mut output = String::new();
    for member in &members {
        let text = if member.outcome == Outcome::Completed {
            member.output.as_str()
        } else {
            member.error.as_deref().unwrap_or_default()
        };
        output.push_str(&format!("### {} ({})\n{text}", member.node, member.outcome.as_str()));
        if !text.ends_with('\n') {
            output.push('\n');
        }
    }
    let error = (outcome != Outcome::Completed).then(|| {
        let all: Vec<String> = members.iter().map(failure).collect();
        format!("every member failed: {}", all.join("; "))
    });
    TeamResult { members, output, outcome, error }
}

fn failure(member: &MemberResult) -> String {
    format!("{}: {}", member.node, member.error.as_deref().unwrap_or("no output"))
}

async fn sequential(
    delegator: &Delegator,
    caller: &RunContext,
    team: &TeamRun,
    prompt: Prompt,
    how: &How,
) -> Result<TeamResult, Refused> {
    let mut input = with_shared(team.shared_prompt.as_deref(), &prompt);
    let mut members: Vec<MemberResult> = Vec::with_capacity(team.members.len());
    let mut cancelled = false;
    let mut broken = None;
    let mut first_refused = None;
    for member in &team.members {
        if caller.stop_requested().is_cancelled() {
            cancelled = true;
            break;
        }
        let result = match start(delegator, caller, member, input.clone(), SpawnMechanism::Spawn, how).await {
            Ok(driven) => drive::finished(driven).await,
            Err(error) => {
                let result = refused(member, &error);
                let stopping = is_stopping(&error);
                first_refused.get_or_insert(error);
                if stopping {
                    cancelled = true;
                    break;
                }
                result
            }
        };
        match result.outcome {
            Outcome::Completed => input = Prompt::from(result.output.clone()),
            // One member was cancelled and not the sequence: a step without success like any other.
            Outcome::Cancelled if team.require_all => cancelled = true,
            Outcome::Failed | Outcome::Interrupted if team.require_all => {
                broken = Some(format!("the team run {} ended at {}", team.name, failure(&result)));
            }
            Outcome::Cancelled | Outcome::Failed | Outcome::Interrupted => {}
        }
        members.push(result);
        if cancelled || broken.is_some() {
            break;
        }
    }
    match first_refused {
        // Nothing exists: the whole delegation is refused (L5).
        Some(first) if members.iter().all(|member| member.session.is_none()) => Err(first),
        _ => Ok(sequential_result(team, members, &input, cancelled, broken)),
    }
}

/// The last successful output goes on; it fails when no step succeeded (L11).
fn sequential_result(
    team: &TeamRun,
    members: Vec<MemberResult>,
    last: &Prompt,
    cancelled: bool,
    broken: Option<String>,
) -> TeamResult {
    let completed = members.iter().any(|member| member.outcome == Outcome::Completed);
    let (outcome, error) = if cancelled {
        (Outcome::Cancelled, Some("cancelled".to_owned()))
    } else if let Some(broken) = broken {
        (Outcome::Failed, Some(broken))
    } else if completed || members.is_empty() {
        (Outcome::Completed, None)
    } else {
        let all: Vec<String> = members.iter().map(failure).collect();
        (
            Outcome::Failed,
            Some(format!("no step of the team run {} succeeded: {}", team.name, all.join("; "))),
        )
    };
    let output = if completed { last.text.to_string() } else { String::new() };
    TeamResult { members, output, outcome, error }
}
