//! `offspring-fake-runtime`: plays a script, a trace or a stream of frames on stdin and stdout.

mod options;
mod process;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use offspring_fake_runtime::{Gates, How, OnSigterm, Player, Script, library};

use crate::options::{Action, Options, Source};

/// A script or its options cannot be used.
const UNUSABLE: u8 = 2;
/// The client did what the script does not allow, or a gate was not opened.
const NOT_AS_WRITTEN: u8 = 3;
/// It had lived for as long as it may.
const TOO_LONG: u8 = 4;

fn main() -> ExitCode {
    let code = match options::read(std::env::args_os().skip(1)) {
        Err(message) => complain(UNUSABLE, &message),
        Ok(Action::Help) => print(options::HELP),
        Ok(Action::List) => print(&listed()),
        Ok(Action::Show(name)) => match library::find(&name) {
            Some(script) => print(script.text),
            None => complain(UNUSABLE, &format!("the library has no script `{name}`; --list names them")),
        },
        Ok(Action::Play(options)) => match script(&options.source) {
            Err(message) => complain(UNUSABLE, &message),
            Ok(script) => run(&options, script),
        },
    };
    // Not a return: a blocked read of stdin must not hold the process.
    std::process::exit(i32::from(code))
}

fn script(source: &Source) -> Result<Script, String> {
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|error| format!("failed to read {}: {error}", path.display()))
    };
    let text = |path: &std::path::Path| {
        String::from_utf8(read(path)?).map_err(|_| format!("{} is not UTF-8", path.display()))
    };
    let (parsed, name) = match source {
        Source::Script(path) => {
            let from_library = path.to_str().filter(|_| !path.exists()).and_then(library::find);
            match from_library {
                Some(script) => (script.parse(), script.name.to_owned()),
                None => (Script::parse(&text(path)?), path.display().to_string()),
            }
        }
        Source::Trace(path) => (Script::from_trace(&text(path)?), path.display().to_string()),
        Source::Stream(path) => (Script::from_stream(read(path)?), path.display().to_string()),
    };
    parsed.map_err(|error| format!("{name}: {error}"))
}

fn run(options: &Options, script: Script) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(UNUSABLE, &format!("failed to start: {error}")),
    };
    runtime.block_on(async {
        let sigterm = script.on_sigterm();
        let mut player = Player::new(script);
        if let Some(directory) = &options.gates {
            player = player.with_gates(Gates::in_directory(directory));
        }
        if let Some(frames) = options.kill_after_frames {
            player = player.kill_after_frames(frames);
        }
        if let Some(bytes) = options.cut_after_bytes {
            player = player.cut_after_bytes(bytes);
        }
        let mut stage = process::OwnProcess;
        let terminated = match process::terminated() {
            Ok(terminated) => terminated,
            Err(error) => return complain(UNUSABLE, &format!("failed to listen for SIGTERM: {error}")),
        };
        let played = player.play_on(&mut stage, process::Input::new(), process::Output::new());
        tokio::select! {
            end = played => ended(&end.how),
            code = after_sigterm(terminated, sigterm) => code,
            () = tokio::time::sleep(Duration::from_secs(options.at_most_seconds)) => {
                complain(TOO_LONG, &format!("it has lived for {} s; --at-most allows more", options.at_most_seconds))
            }
        }
    })
}

async fn after_sigterm(mut terminated: tokio::signal::unix::Signal, on: OnSigterm) -> u8 {
    loop {
        terminated.recv().await;
        if let OnSigterm::Exit(code) = on {
            return code;
        }
    }
}

fn ended(how: &How) -> u8 {
    match how {
        How::Exit(code) => *code,
        How::Signal(signal) => process::die(*signal),
        How::ClientWrong { line: 0, what } => complain(NOT_AS_WRITTEN, what),
        How::ClientWrong { line, what } => complain(NOT_AS_WRITTEN, &format!("line {line}: {what}")),
        How::GateClosed { line, name } => {
            complain(NOT_AS_WRITTEN, &format!("line {line}: nobody opened the gate `{name}` in time"))
        }
        // A reader that is gone ends a program that writes.
        _ => 0,
    }
}

fn listed() -> String {
    let line = |script: &library::LibraryScript| {
        let about = script.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' ']);
        format!("{:<56} {about}\n", script.name)
    };
    library::SCRIPTS.iter().map(line).collect()
}

fn print(text: &str) -> u8 {
    // Whoever closed our stdout does not want to read it.
    let _ = std::io::stdout().write_all(text.as_bytes());
    0
}

fn complain(code: u8, message: &str) -> u8 {
    let _ = writeln!(std::io::stderr(), "offspring-fake-runtime: {message}");
    code
}
