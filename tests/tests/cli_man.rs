//! `offspring man`: pages that `man` shows, one per command.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use offspring_tests::{Finished, Running, World};

fn man(world: &World, arguments: &[&str]) -> Finished {
    let mut command = world.bare();
    command.arg("man").args(arguments);
    Running::start(command).finish()
}

/// What a program that reads manual pages makes of a page, if the program is there.
fn read_by(program: &str, arguments: &[&str], page: &Path) -> Option<(String, String)> {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|found| found.is_file())?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(page)
        .env_clear()
        .env("PATH", path)
        .env("LC_ALL", "C.UTF-8")
        .env("MANWIDTH", "80");
    let done = Running::start(command).finish();
    Some((done.stdout, done.stderr))
}

#[test]
fn there_is_a_page_for_the_program_and_one_for_every_command_and_older_ones_are_replaced() {
    let world = World::new();
    world.write("pages/offspring-run.1", "of an older program");
    let dir = world.path("pages").display().to_string();
    let done = man(&world, &["--dir", &dir]).with(0);
    let help = Running::start({
        let mut command = world.bare();
        command.arg("--help");
        command
    });
    let help = help.finish().with(0).stdout;
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let listed = listed.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let mut expected: BTreeSet<String> = listed
        .map(|line| line.split(' ').next().unwrap())
        .filter(|name| *name != "help")
        .map(|name| format!("offspring-{name}.1"))
        .collect();
    expected.insert("offspring.1".to_owned());
    let written: BTreeSet<String> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(written, expected);
    assert_eq!(done.stdout.lines().count(), expected.len());

    for name in &written {
        let path = world.path("pages").join(name);
        let page = fs::read_to_string(&path).unwrap();
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS", ".SH EXAMPLES"] {
            assert!(page.lines().any(|line| line == section), "{name} lacks {section}");
        }
        assert!(page.contains(concat!("offspring ", env!("CARGO_PKG_VERSION"))), "{name}");
        let command = name.trim_end_matches(".1").replacen('-', " ", 1);
        if let Some((shown, said)) = read_by("man", &["--warnings", "-l"], &path) {
            assert_eq!(said, "", "{name}");
            // Examples stand as they are typed.
            let example = shown.lines().skip_while(|line| *line != "EXAMPLES").nth(1).unwrap_or_default();
            assert!(example.trim_start().contains(&command), "{name}: {shown}");
        }
        if let Some((found, _)) = read_by("mandoc", &["-T", "lint", "-W", "warning"], &path) {
            // No date is meant; the others are about space between values of a flag.
            let meant = ["missing date", "skipping paragraph macro: br"];
            let wrong: Vec<&str> =
                found.lines().filter(|line| !meant.iter().any(|meant| line.contains(meant))).collect();
            assert_eq!(wrong, Vec::<&str>::new(), "{name}");
        }
    }
}

#[test]
fn one_page_goes_to_stdout_and_what_is_no_command_is_said() {
    let world = World::new();
    let program = man(&world, &[]).with(0).stdout;
    assert!(program.starts_with(".TH \"OFFSPRING\" \"1\"") && program.contains(".SH FILES"), "{program}");
    let run = man(&world, &["run"]).with(0).stdout;
    assert!(run.starts_with(".TH \"OFFSPRING-RUN\" \"1\"") && run.contains("new\\-root"), "{run}");
    let done = man(&world, &["rnu"]).with(2);
    assert!(done.stderr.contains("no command rnu; there are: run, "), "{}", done.stderr);
    world.write("here/file", "");
    let done = man(&world, &["--dir", "file"]).with(1);
    assert!(done.stderr.contains("file") && done.stderr.contains("--dir"), "{}", done.stderr);
    assert_eq!(man(&world, &["run", "--dir", "x"]).code, Some(2));
    assert!(!world.path("here/x").exists());
}
