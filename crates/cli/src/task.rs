//! `offspring task`: delegation from inside a run.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use offspring_agents::endpoint::Client;
use offspring_protocol::{
    NodeName, Outcome, RunState, TaskKey,
    control::{
        NODE_LIST, NodeListResult, TASK_CANCEL, TASK_OUTPUT, TASK_START, TASK_STATUS, TaskParams, TaskResult,
        TaskStartParams,
    },
};

use crate::{
    failure::Failure,
    prompt::{MaxPrompt, PromptArgs},
    text::{finish, finish_json, for_stdout, json_line, out, plain},
    variables,
};

#[derive(Debug, Args)]
#[command(
    override_usage = "offspring task [OPTIONS] <NODE> <PROMPT|--prompt-file FILE>\n       offspring task nodes\n       \
        offspring task status|output|cancel <TASK>",
    after_help = "Prints the child's answer. Exit codes: 0 completed, 1 failed or refused, 2 wrong use.\n\n\
        Examples, inside an agent's script:\n  \
        offspring task reviewer \"Look at src/\"\n  \
        git diff | offspring task reviewer -\n  \
        offspring task reviewer --prompt-file notes.md\n  \
        id=$(offspring task --detach slow \"Measure\") && offspring task output \"$id\""
)]
pub(crate) struct Task {
    /// The node to delegate to (an agent, a team, or ask_WORKER), or one of nodes, status, output, cancel.
    pub(crate) node: String,
    /// What it is asked (`-` reads it from stdin), or the task's id.
    #[arg(conflicts_with = "prompt_file")]
    pub(crate) prompt: Option<String>,
    /// Read what it is asked from a file; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Print the task's id at once and do not wait.
    #[arg(long)]
    pub(crate) detach: bool,
    /// What it is for, in a few words.
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub(crate) description: String,
    /// The child's working directory, relative to this session's.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The longest prompt that is sent at all.
const MAX_PROMPT_BYTES: u64 = 64 << 20;

pub(crate) async fn task(args: Task) -> Result<ExitCode, Failure> {
    let (Some(socket), Some(token)) =
        (std::env::var_os(variables::SOCKET), std::env::var(variables::TOKEN).ok())
    else {
        return Err(Failure::usage(
            "this is not inside a run: `offspring task` makes a child of the session whose agent calls it\n\
             to start a pool: offspring run MANIFEST PROMPT",
        ));
    };
    let json = args.json;
    let mut client = Client::connect(&PathBuf::from(socket), &token).await?;
    let key = |args: &Task| {
        let missing = || Failure::usage(format!("`offspring task {}` needs the id of a task", args.node));
        args.prompt.as_deref().ok_or_else(missing).and_then(|key| TaskKey::new(key).map_err(Failure::usage))
    };
    match args.node.as_str() {
        "nodes" => {
            let list: NodeListResult = client.call(NODE_LIST, &()).await?;
            if json {
                return finish_json(&list);
            }
            let line = |node: &offspring_protocol::control::NodeDescription| {
                format!("{}\t{}\t{}\n", node.name, node.source_type, plain(&node.description))
            };
            finish(&list.nodes.iter().map(line).collect::<String>())
        }
        "status" => {
            let result: TaskResult = client.call(TASK_STATUS, &TaskParams { task: key(&args)? }).await?;
            if json {
                return finish_json(&result);
            }
            finish(&format!("{}\n", result.state.as_str()))
        }
        "output" => answer(&client.call(TASK_OUTPUT, &TaskParams { task: key(&args)? }).await?, json),
        "cancel" => {
            let result: TaskResult = client.call(TASK_CANCEL, &TaskParams { task: key(&args)? }).await?;
            if json {
                return finish_json(&result);
            }
            finish(&format!("{}\n", result.state.as_str()))
        }
        _ => start(&mut client, args).await,
    }
}

async fn start(client: &mut Client, args: Task) -> Result<ExitCode, Failure> {
    let Task { node, prompt, prompt_file, detach, description, cwd, json } = args;
    let prompt = PromptArgs { prompt, prompt_file };
    if !prompt.is_given() {
        return Err(Failure::usage(format!(
            "there is no prompt: what should {node} be asked? \
             offspring task {node} PROMPT; `-` reads it from stdin, --prompt-file FILE from a file"
        )));
    }
    // What the pool takes is less, and the pool says so.
    let prompt = prompt.read(&MaxPrompt { bytes: MAX_PROMPT_BYTES, set_by: "of `offspring task`" })?;
    let node = NodeName::new(node).map_err(Failure::usage)?;
    let metadata = std::collections::BTreeMap::new();
    let params = TaskStartParams { node, prompt, description, detach, cwd, metadata };
    let result: TaskResult = client.call(TASK_START, &params).await?;
    if detach && !json {
        return finish(&format!("{}\n", result.task.task));
    }
    answer(&result, json)
}

/// The answer on stdout as it is: a pipe loses nothing (W11).
fn answer(result: &TaskResult, json: bool) -> Result<ExitCode, Failure> {
    let ok =
        matches!(result.state, RunState::Ended(Outcome::Completed) | RunState::Pending | RunState::Running);
    let text = if json { json_line(result)? } else { for_stdout(&result.output).into_owned() };
    match out(&text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    if ok {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(result.error.as_deref().unwrap_or(result.state.as_str())))
}
