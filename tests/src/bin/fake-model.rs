//! A scripted model on the loopback, for trying a runtime by hand without a network:
//! `cargo run -p offspring-tests --bin fake-model -- --port 8099`. The grammar of its prompts is in
//! `tests/src/fake_model/script.rs`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people, which speaks no protocol"
)]

use std::process::ExitCode;

use offspring_tests::fake_model::FakeModel;

const USAGE: &str = "usage: fake-model [--port N]\n\n\
    Answers POST /v1/messages on 127.0.0.1 as its prompt says (`SAY hello`, `DELEGATE 2`, …; the grammar is in\n\
    tests/src/fake_model/script.rs). The first line of stdout is its address. POST /gate/NAME opens a gate.\n\
    Without --port, or with 0, a free port is taken.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let port = match arguments.as_slice() {
        [] => Some(0),
        ["--port", port] => port.parse().ok(),
        ["-h" | "--help"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => None,
    };
    let Some(port) = port else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match FakeModel::start_on(port) {
        Ok(model) => {
            println!("{}", model.url());
            model.serve();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("fake-model: failed to listen on 127.0.0.1:{port}: {error}");
            ExitCode::FAILURE
        }
    }
}
