//! `--help` of every command, and what is said about flags that are not there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use offspring_tests::{Finished, Running, World};

fn offspring(world: &World, arguments: &[&str]) -> Finished {
    let mut command = world.bare();
    command.args(arguments);
    Running::start(command).finish()
}

/// Every command that `--help` names, and those below them.
fn commands(world: &World) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut open: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(above) = open.pop() {
        let arguments: Vec<&str> = above.iter().map(String::as_str).chain(["--help"]).collect();
        let help = offspring(world, &arguments).with(0).stdout;
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in listed.take_while(|line| !line.is_empty()) {
            // A description that goes on is indented further.
            let Some(name) = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) else { continue };
            let name = name.split_whitespace().next().unwrap();
            if name != "help" {
                let below: Vec<String> = above.iter().cloned().chain([name.to_owned()]).collect();
                open.push(below.clone());
                found.push(below);
            }
        }
    }
    found
}

#[test]
fn every_command_says_what_it_does_with_an_example_that_begins_with_it() {
    let world = World::new();
    let commands = commands(&world);
    for name in ["run", "ls", "tree", "show", "watch", "cancel", "task", "init", "check", "schema", "man"] {
        assert!(commands.contains(&vec![name.to_owned()]), "{name} is not listed: {commands:?}");
    }
    for command in std::iter::once(Vec::new()).chain(commands) {
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let help = offspring(&world, &[&arguments[..], &["--help"]].concat()).with(0).stdout;
        let line = ["offspring"].iter().chain(&arguments).copied().collect::<Vec<_>>().join(" ");
        let first = help.lines().next().unwrap_or_default();
        assert!(first.len() > 10 && !first.starts_with("Usage"), "{line} does not say what it does:\n{help}");
        let example = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
        let mut example = example.take_while(|line| line.starts_with("  "));
        assert!(example.any(|example| example.contains(&line)), "{line} has no example:\n{help}");
        // `-h` is the same, shorter at most; and `help` is another way to ask.
        assert!(offspring(&world, &[&arguments[..], &["-h"]].concat()).with(0).stdout.contains("Example"));
    }
    assert!(offspring(&world, &["help", "check"]).with(0).stdout.contains("Example"));
}

#[test]
fn a_flag_that_is_not_there_ends_every_command_with_code_2() {
    let world = World::new();
    let commands = commands(&world);
    for command in std::iter::once(Vec::new()).chain(commands) {
        let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--no-such-flag"]).collect();
        let done = offspring(&world, &arguments).with(2);
        assert_eq!(done.stdout, "", "{arguments:?}");
        assert!(done.stderr.contains("--no-such-flag"), "{arguments:?}: {}", done.stderr);
        let lines = done.stderr.lines().filter(|line| !line.is_empty()).count();
        assert!(lines <= 6, "{arguments:?}: {}", done.stderr);
    }
    let done = offspring(&world, &["watc"]).with(2);
    assert!(done.stderr.contains("'watc'") && done.stderr.contains("'watch'"), "{}", done.stderr);
    let done = offspring(&world, &[]).with(2);
    assert!(done.stderr.contains("Usage") && done.stderr.contains("Example"), "{}", done.stderr);
}
