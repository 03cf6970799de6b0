//! The guard as a program of its own; see `offspring_process::guard`.

use std::process::ExitCode;

fn main() -> ExitCode {
    offspring_process::guard::main(std::env::args_os().skip(1))
}
