//! The program, the programs it needs, the kernel and the terminal.

use std::{
    ffi::OsStr,
    io::{self, IsTerminal},
    path::Path,
    time::Duration,
};

use offspring_process::{
    Environment, Exit, ExitKind, Facilities, GuardProgram, Ladder, ProcessSpec, Stdout, resolve_program,
    spawn,
};
use tokio::io::AsyncReadExt;

use super::{Finding, Level};
use crate::{GUARD, screen::Size, variables};

/// A program that is asked whether it works gets this long.
const ASKED: Duration = Duration::from_secs(5);
/// So much of what it says is read.
const SAID: u64 = 4 << 10;

/// A program without which agents of examples and scripts do not work.
struct Tool {
    name: &'static str,
    /// Shows that it works: ends with 0.
    works: &'static [&'static str],
    /// Print its version, the first or the next, as its kind may be.
    version: &'static [&'static [&'static str]],
    why: &'static str,
}

const TOOLS: [Tool; 4] = [
    Tool {
        name: "git",
        works: &["--version"],
        version: &[&["--version"]],
        why: "sessions of one repository are found together by it",
    },
    Tool {
        name: "awk",
        works: &["BEGIN { exit 0 }"],
        version: &[&["--version"], &["-W", "version"]],
        why: "scripts of agents use it",
    },
    Tool {
        name: "sh",
        works: &["-c", "exit 0"],
        version: &[&["--version"]],
        why: "agents are scripts for it",
    },
    Tool { name: "sort", works: &["/dev/null"], version: &[&["--version"]], why: "scripts of agents use it" },
];

pub(super) async fn look() -> Vec<Finding> {
    let mut findings = vec![program()];
    for tool in &TOOLS {
        findings.push(look_for(tool).await);
    }
    findings.push(kernel());
    findings.push(guard().await);
    findings.push(terminal());
    findings.push(locale());
    findings
}

fn program() -> Finding {
    let version = env!("CARGO_PKG_VERSION");
    match std::env::current_exe() {
        Ok(path) => Finding::ok("program", format!("offspring {version}, {}", path.display())),
        Err(error) => Finding::problem(
            "program",
            format!("offspring {version}; where it is cannot be told: {error}"),
            "agents are started through it: start it from a file that is still there",
        ),
    }
}

async fn look_for(tool: &Tool) -> Finding {
    let Tool { name, works, version, why } = tool;
    let path = std::env::var_os(variables::PATH);
    let install = |name: &str| format!("install {name}, or put its directory on PATH: {why}");
    let found = match resolve_program(OsStr::new(name), Path::new("/"), path.as_deref()) {
        Ok(found) => found,
        Err(error) => return Finding::problem(name, error.to_string(), install(name)),
    };
    let place = found.display();
    match ask(&found, works).await {
        Ok((exit, _)) if exit.is_success() => {}
        Ok((exit, _)) => {
            let said = format!("{place} does not work: {}", end(&exit));
            return Finding::problem(name, said, install(name));
        }
        Err(why) => return Finding::problem(name, format!("{place} does not work: {why}"), install(name)),
    }
    let mut said = String::new();
    for arguments in version.iter() {
        said = match ask(&found, arguments).await {
            Ok((exit, said)) if exit.is_success() => said.lines().next().unwrap_or_default().to_owned(),
            _ => String::new(),
        };
        if !said.is_empty() {
            break;
        }
    }
    if said.is_empty() {
        // A shell that does not say who it is, is often a link to one that has a name.
        let link = found.canonicalize().ok().filter(|file| *file != found);
        let link = link.map(|file| format!(" -> {}", file.display())).unwrap_or_default();
        return Finding::ok(name, format!("{place}{link}"));
    }
    Finding::ok(name, format!("{said}, {place}"))
}

/// Runs a program without input; gives how it ended and the beginning of what it said.
async fn ask(program: &Path, arguments: &[&str]) -> Result<(Exit, String), String> {
    run(ProcessSpec::new(program, "/").args(arguments.iter().copied())).await
}

async fn run(spec: ProcessSpec) -> Result<(Exit, String), String> {
    let spec = spec.environment(Environment::empty().small_set()).stdout(Stdout::Pipe);
    let mut process = spawn(&spec).map_err(|error| error.to_string())?;
    let mut said = Vec::new();
    let asked = async {
        if let Some(stdout) = process.take_stdout() {
            let _ = stdout.take(SAID).read_to_end(&mut said).await;
        }
        process.wait().await
    };
    let exit = tokio::time::timeout(ASKED, asked).await;
    if exit.is_err() {
        process.stop(Ladder::at_once()).await;
    }
    let exit = exit.map_err(|_| format!("it did not end within {} s", ASKED.as_secs()))?;
    Ok((exit, String::from_utf8_lossy(&said).into_owned()))
}

/// How a program ended, with the last line of its stderr.
fn end(exit: &Exit) -> String {
    let how = match exit.status {
        ExitKind::Code(code) => format!("it ended with status {code}"),
        ExitKind::Signal(signal) => format!("signal {signal} ended it"),
        ExitKind::Unknown => "how it ended was not seen".to_owned(),
    };
    let line = exit.stderr_tail.last_line();
    if line.is_empty() { how } else { format!("{how}: {line}") }
}

fn kernel() -> Finding {
    let Facilities { subreaper, pidfd, processes } = Facilities::here();
    let has = [("subreaper", subreaper), ("pidfd", pidfd), ("/proc", processes)];
    let names = |there: bool| -> String {
        let names: Vec<&str> =
            has.iter().filter(|(_, found)| *found == there).map(|(name, _)| *name).collect();
        names.join(", ")
    };
    let missing = names(false);
    if missing.is_empty() {
        return Finding::ok("kernel", names(true));
    }
    let todo = "a process that leaves its group may outlive its run; Linux 5.3 or later has all of it";
    // Without these a guard cannot work, and where there are guards no agent runs without one.
    let level = if GuardProgram::SUPPORTED { Level::Problem } else { Level::Warning };
    Finding::new("kernel", level, format!("there is no {missing}"), todo)
}

/// Lets a guard do what it does for each agent.
async fn guard() -> Finding {
    if !GuardProgram::SUPPORTED {
        let todo = "after `kill -9` of the program its agents run on; stop it with Ctrl-C";
        return Finding::new("guard", Level::Warning, "this system has none", todo);
    }
    let todo =
        "no agent can be run: start the program from a file that may be executed, on Linux 5.3 or later";
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return Finding::problem("guard", error.to_string(), todo),
    };
    let guard = GuardProgram::new(&program).arg(GUARD);
    match run(ProcessSpec::new(program, "/").arg("--version").guard(guard)).await {
        Ok((exit, _)) if exit.is_success() => {
            Finding::ok("guard", "agents end with the program, however that ends")
        }
        Ok((exit, _)) => Finding::problem("guard", end(&exit), todo),
        Err(why) => Finding::problem("guard", why, todo),
    }
}

fn terminal() -> Finding {
    let term = std::env::var_os(variables::TERM);
    let term =
        term.as_ref().map_or("TERM is not set".into(), |term| format!("TERM={}", term.to_string_lossy()));
    if !io::stderr().is_terminal() {
        return Finding {
            level: Level::Note,
            ..Finding::ok("terminal", format!("stderr is no terminal, {term}: `run` prints lines"))
        };
    }
    let Size { rows, columns } = Size::of_stderr();
    Finding::ok("terminal", format!("{columns}x{rows}, {term}"))
}

fn locale() -> Finding {
    let note = |found: String| Finding { level: Level::Note, ..Finding::ok("locale", found) };
    let set = variables::LOCALE.into_iter().find_map(|name| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
        Some((name, value))
    });
    let Some((name, value)) = set else { return note("none is set".to_owned()) };
    let is_utf8 = value.to_lowercase().replace('-', "").contains("utf8");
    let found = format!("{name}={value}");
    if is_utf8 { Finding::ok("locale", found) } else { note(format!("{found}, which is not UTF-8")) }
}
