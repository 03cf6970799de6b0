//! `offspring completions`: loaded by the shells that are there, and used.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::process::Command;

use offspring_tests::{Running, World};

fn script(world: &World, shell: &str) -> String {
    let mut command = world.bare();
    command.args(["completions", shell]).env_remove("HOME").env_remove("XDG_STATE_HOME");
    let done = Running::start(command).finish().with(0);
    assert_eq!(done.stderr, "");
    done.stdout
}

/// Runs a shell, if it is there; what it prints, and that it complains of nothing.
fn shell(world: &World, program: &str, arguments: &[&str]) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|found| found.is_file())?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(world.here())
        .env_clear()
        .env("PATH", path)
        .env("HOME", world.path("home"));
    let done = Running::start(command).finish().with(0);
    assert_eq!(done.stderr, "", "{program}");
    Some(done.stdout)
}

#[test]
fn every_shell_gets_a_script_that_knows_every_command_and_needs_no_store() {
    let world = World::new();
    for name in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = script(&world, name);
        for word in ["run", "check", "init", "cancel", "new-root", "mermaid"] {
            assert!(script.contains(word), "{name} does not know {word}");
        }
        // What is not for people is not offered.
        assert!(!script.contains("__guard") && !script.contains("__reference"), "{name}");
    }
    let mut command = world.bare();
    command.args(["completions", "csh"]);
    let done = Running::start(command).finish().with(2);
    assert!(done.stderr.contains("bash") && done.stderr.contains("fish"), "{}", done.stderr);
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let world = World::new();
    world.write("here/offspring.bash", &script(&world, "bash"));
    let complete = |words: &str| {
        let (before, word) = words.rsplit_once(' ').unwrap();
        let count = before.split(' ').count();
        // As readline calls it: the function that `complete` has for this program.
        let line = format!(
            "source ./offspring.bash; COMP_WORDS=({words}); COMP_CWORD={count}; \
             $(complete -p offspring | sed 's/.*-F \\([^ ]*\\).*/\\1/') offspring '{word}' '{}'; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            before.rsplit(' ').next().unwrap()
        );
        shell(&world, "bash", &["--norc", "--noprofile", "-c", &line])
    };
    // A machine without bash has no completions of it either.
    if let Some(found) = complete("offspring che") {
        assert_eq!(found, "check\n");
        assert_eq!(complete("offspring run --new").unwrap(), "--new-root\n");
        assert_eq!(complete("offspring completions fi").unwrap(), "fish\n");
        assert_eq!(complete("offspring tree --m").unwrap(), "--mermaid\n");
    }
}

#[test]
fn zsh_and_fish_load_theirs_where_they_are() {
    let world = World::new();
    world.write("here/_offspring", &script(&world, "zsh"));
    world.write("here/offspring.fish", &script(&world, "fish"));
    let load = "fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; print ${_comps[offspring]}; autoload +X _offspring";
    if let Some(found) = shell(&world, "zsh", &["-f", "-c", load]) {
        assert_eq!(found, "_offspring\n");
    }
    let complete = "source ./offspring.fish; complete -C 'offspring che'; complete -C 'offspring run --new'";
    if let Some(found) = shell(&world, "fish", &["-N", "-c", complete]) {
        let words: Vec<&str> = found.lines().map(|line| line.split('\t').next().unwrap()).collect();
        assert_eq!(words, ["check", "--new-root"]);
    }
}
