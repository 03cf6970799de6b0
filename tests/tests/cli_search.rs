//! `offspring search`: where something was said, the newest first.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use offspring_tests::{World, terminal::Terminal};
use serde_json::Value;

#[path = "looking/plant.rs"]
mod plant;
use plant::Plant;

/// Two trees: an older one with `Needle` in a prompt and across two pieces, a newer one with it in an error.
fn planted() -> (World, [String; 4]) {
    let world = World::new();
    let plant = Plant::new(&world.db());
    let old = plant.root("old", "find the Needle\nand nothing else");
    let child = plant.child(&old, "seeker", "look");
    plant.says(&child, &["there is a nee", "dle in \u{1b}[31mthe hay\n", "and more"]);
    let child = plant.answers(child, "");
    let old = plant.answers(old, "done");
    let new = plant.root("new", "again");
    let other = plant.child(&new, "other", "look elsewhere");
    let other = plant.fails(other, "the NEEDLE was not there");
    let new = plant.answers(new, "done");
    plant.close();
    (world, [old, child, new, other].map(|id| id.to_string()))
}

#[test]
fn a_text_is_found_in_every_tree_the_newest_first() {
    let (world, [old, seeker, _, other]) = planted();
    let done = world.offspring(&["search", "needle"]).with(0);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{done:?}");
    for (line, (id, node, text)) in lines.iter().zip([
        (&other, "other", "error: the NEEDLE was not there"),
        (&seeker, "seeker", "there is a needle in \u{fffd}[31mthe hay"),
        (&old, "old", "> find the Needle"),
    ]) {
        assert!(line.starts_with(&format!("{id} {node} ")), "{line}");
        assert!(line.ends_with(text), "{line:?}");
    }
    assert!(done.stderr.is_empty(), "{}", done.stderr);
    // What is printed leads to the session.
    let shown = world.offspring(&["show", lines[1].split(' ').next().unwrap()]).with(0);
    assert!(shown.stdout.contains("there is a needle"), "{}", shown.stdout);
}

#[test]
fn it_says_with_its_exit_code_whether_something_was_found() {
    let (world, [old, _, new, _]) = planted();
    let code = |arguments: &[&str]| world.offspring(&[&["search"], arguments].concat()).code;
    assert_eq!(code(&["hay"]), Some(0));
    let nothing = world.offspring(&["search", "no such thing"]).with(1);
    assert!(nothing.stdout.is_empty(), "{nothing:?}");
    assert!(nothing.stderr.starts_with("`no such thing` was not said in "), "{nothing:?}");
    let for_programs = world.offspring(&["search", "no such thing", "--json"]).with(1);
    assert!(for_programs.stdout.is_empty() && for_programs.stderr.is_empty(), "{for_programs:?}");
    for command in [&["search", "hay", "-n", "0"][..], &["ls", "-n", "0"]] {
        let done = world.offspring(command).with(2);
        assert!(done.stderr.contains("it is 0, and nothing would be shown"), "{done:?}");
    }
    assert_eq!(code(&["needle", "--case-sensitive"]), Some(0));
    assert_eq!(code(&["NeEdLe", "-s"]), Some(1));
    assert_eq!(code(&["NeEdLe"]), Some(0));
    assert_eq!(code(&["needle", "--session", &old]), Some(0));
    assert_eq!(code(&["hay", "--session", &new]), Some(1));
    assert_eq!(code(&["not there", "--session", "latest"]), Some(0));
    assert_eq!(code(&[""]), Some(2));
    assert_eq!(code(&["two\nlines"]), Some(2));
    assert_eq!(code(&["x", "--session", "ses_none"]), Some(2));
    // A pattern is a text like any other.
    assert_eq!(code(&["ne.dle"]), Some(1));
}

#[test]
fn the_newest_so_many_are_shown_and_it_is_said_that_there_are_more() {
    let (world, [_, _, _, other]) = planted();
    let done = world.offspring(&["search", "needle", "-n", "1"]).with(0);
    assert!(done.stdout.starts_with(&other) && done.stdout.lines().count() == 1, "{}", done.stdout);
    assert!(done.stderr.contains("there is more"), "{}", done.stderr);
    let plant = Plant::new(&world.db());
    let root = plant.root("many", "x");
    let lines: Vec<String> = (0..100).map(|n| format!("line {n} of many\n")).collect();
    plant.says(&root, &[&lines.concat()]);
    plant.answers(root, "");
    plant.close();
    let done = world.offspring(&["search", "of many", "-n", "3"]).with(0);
    let texts: Vec<&str> = done.stdout.lines().map(|line| line.rsplit_once(" line ").unwrap().1).collect();
    assert_eq!(texts, ["99 of many", "98 of many", "97 of many"]);
}

#[test]
fn programs_get_a_line_of_json_for_each() {
    let (world, [old, seeker, _, _]) = planted();
    let done = world.offspring(&["search", "Needle", "--json"]).with(0);
    let hits: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(hits.len(), 3);
    assert_eq!(hits[1]["session"], seeker);
    assert_eq!(hits[1]["root"], old);
    assert_eq!(hits[1]["node"], "seeker");
    assert_eq!(hits[1]["said_as"], "answer");
    assert_eq!(hits[1]["before"], "there is a ");
    assert_eq!(hits[1]["match"], "needle");
    assert_eq!(hits[1]["after"], " in \u{1b}[31mthe hay");
    assert!(hits[1]["seq"].is_u64() && hits[1]["at"].is_i64());
}

#[test]
fn w11_a_terminal_gets_the_match_in_colour_and_no_sequence_of_an_agent() {
    let (world, _) = planted();
    let terminal = Terminal::start(&world.command(&["search", "needle", "--session", "latest"]), 40, 200);
    let (code, shown) = terminal.finish();
    assert_eq!(code, Some(0));
    assert!(shown.contains("the \u{1b}[31mNEEDLE\u{1b}[0m was"), "{shown:?}");
    let terminal = Terminal::start(&world.command(&["search", "hay", "--color", "never"]), 40, 200);
    let (code, shown) = terminal.finish();
    assert_eq!(code, Some(0));
    assert!(shown.contains("in \u{fffd}[31mthe hay") && !shown.contains("\u{1b}[31m"), "{shown:?}");
}
