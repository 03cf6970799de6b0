//! A runtime that plays a script of `offspring_tests::streams` on its stdin and stdout.

use std::{io, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let Some(script) = std::env::args_os().nth(1) else { return ExitCode::from(2) };
    let played = offspring_tests::streams::player::play(
        Path::new(&script),
        io::stdin().lock(),
        // Unbuffered: the player hands over large pieces itself.
        std::fs::File::from(rustix::io::dup(io::stdout()).unwrap_or_else(|_| std::process::exit(3))),
    );
    match played {
        Ok(offspring_tests::streams::player::Ended::Closed) => ExitCode::SUCCESS,
        Ok(offspring_tests::streams::player::Ended::Exit) => ExitCode::from(1),
        // The client went away in the middle, as clients do.
        Err(_) => ExitCode::from(4),
    }
}
