//! Three repositories with planted facts: each is in the answer with its evidence,
//! in the transcript of the child that reported it, and gone with its cause.

use crate::run::{ask, survey};
use crate::world::{World, lines};

#[test]
fn a_fixme_is_reported_with_its_line_by_the_child_that_looks_for_it() {
    let world = World::repository();
    world
        .write("README.md", "# Planted\n")
        .write("src/parser.rs", "fn parse() {\n    // The start.\n    // FIXME: handle the empty input\n}\n")
        .commit("plant");
    let found = survey(&world);
    found.has(&["src/parser.rs:3", "FIXME", "handle the empty input"]);
    for agent in ["urgent", "markers"] {
        let said = found.transcript(agent);
        assert!(said.contains("src/parser.rs:3"), "{agent} said {said}");
    }
    assert!(!found.transcript("later").contains("src/parser.rs:3"));

    world
        .write("src/parser.rs", "fn parse() {\n    // The start.\n}\n")
        .write("src/lexer.rs", "// As for the FIXME in the parser, see there.\nfn lex() {}\n")
        .commit("remove");
    let gone = survey(&world);
    gone.lacks(&["src/parser.rs:3"]);
    gone.lacks(&["FIXME"]);
}

#[test]
fn a_file_changed_thirty_times_is_reported_with_its_commits() {
    let world = World::repository();
    world.write("calm.c", "int calm;\n");
    for n in 0..30 {
        world.write("tangle.c", &format!("int tangle_{n};\n")).commit(&format!("change {n}"));
    }
    let last = world.git(&["rev-parse", "--short", "HEAD"]);
    world.write("notes.md", "done\n").commit("something else");
    let found = survey(&world);
    found.has(&["tangle.c", "30 of 31 commits", &last]);
    found.lacks(&["calm.c", "commits"]);
    let said = found.transcript("history");
    assert!(said.contains("tangle.c") && said.contains("30 of 31 commits"), "history said {said}");

    world.remove("tangle.c").commit("remove");
    survey(&world).lacks(&["tangle.c"]);
}

#[test]
fn an_unpinned_dependency_and_a_long_file_are_reported_by_their_children() {
    let world = World::repository();
    world
        .write("requirements.txt", "numpy==2.1.0\nrequests>=2\n")
        .write("web/package.json", "{\n  \"dependencies\": {\n    \"left-pad\": \"*\"\n  }\n}\n")
        .write("src/endless.c", &lines(5000))
        .commit("plant");
    let found = survey(&world);
    found.has(&["requirements.txt:2", "requests>=2"]);
    found.has(&["web/package.json:3", "left-pad", "*"]);
    found.has(&["src/endless.c", "5000 lines"]);
    found.lacks(&["numpy"]);
    let said = found.transcript("dependencies");
    assert!(said.contains("requirements.txt:2") && said.contains("web/package.json:3"), "{said}");
    for agent in ["large-files", "size"] {
        let said = found.transcript(agent);
        assert!(said.contains("src/endless.c: 5000 lines"), "{agent} said {said}");
    }

    world
        .write("requirements.txt", "numpy==2.1.0\nrequests==2.32.0\n")
        .write("web/package.json", "{\n  \"dependencies\": {\n    \"left-pad\": \"1.3.0\"\n  }\n}\n")
        .write("src/endless.c", &lines(20))
        .commit("repair");
    let gone = survey(&world);
    gone.lacks(&["requirements.txt:"]);
    gone.lacks(&["package.json:"]);
    gone.lacks(&["endless.c"]);
}

#[test]
fn two_questions_about_one_repository_give_two_orders() {
    let world = World::repository();
    world
        .write("requirements.txt", "requests\nflask\n")
        .write("src/main.py", "print('no test of this')\n")
        .write("src/other.py", "# FIXME: wrong\n")
        .commit("plant");
    let tests = ask(&world, "Which tests are missing here?");
    let dependencies = ask(&world, "Are the dependencies in order?");
    assert_eq!(tests.first_kind(), "tests", "{}", tests.report);
    assert_eq!(dependencies.first_kind(), "dependencies", "{}", dependencies.report);
    assert_ne!(tests.items(), dependencies.items());
    tests.has(&["Ranking", "tests", "×3"]);
    dependencies.has(&["Ranking", "dependencies", "×3"]);
    // The same facts in another order.
    let sorted = |mut items: Vec<String>| {
        items.sort();
        items
    };
    assert_eq!(sorted(tests.items()), sorted(dependencies.items()));
}

#[test]
fn a_topic_is_turned_down_by_the_words_before_it() {
    let world = World::repository();
    world.write("src/main.py", "print('no test of this')\n").commit("plant");
    for (question, ranking) in [
        ("Skip the tests.", "tests ×0.25 (\"tests\")"),
        (
            "I don't care about CI or tests. Docs!",
            "ci ×0.25 (\"ci\"), tests ×0.25 (\"tests\"), docs ×3 (\"docs\")",
        ),
        ("I am not interested in tests", "tests ×0.25 (\"tests\")"),
        ("What is not tested?", "tests ×3 (\"tested\")"),
        ("Which files do not have tests?", "tests ×3 (\"tests\")"),
        ("Any secrets?", "security ×3 (\"secrets\", nothing found)"),
    ] {
        let found = ask(&world, question);
        found.has(&["Ranking", &format!("weights: {ranking}")]);
    }
}

#[test]
fn the_tree_is_three_levels_deep_and_nothing_is_written_into_the_directory() {
    let world = World::repository();
    world.write("src/main.c", "int main(void) { return 0; } // TODO: more\n").commit("plant");
    let before = world.picture();
    let found = survey(&world);
    assert_eq!(before, world.picture(), "the surveyed directory was changed");
    let sessions = found.sessions();
    let depth = |agent: &str| {
        sessions
            .iter()
            .find(|session| session["agent_name"] == agent)
            .unwrap_or_else(|| panic!("no session of {agent}"))["depth"]
            .as_u64()
    };
    assert_eq!(depth("coordinator"), Some(0));
    assert_eq!(depth("markers"), Some(1));
    assert_eq!(depth("later"), Some(2));
    assert_eq!(depth("write"), Some(1));
    assert_eq!(sessions.len(), 15);
    for session in &sessions {
        assert_eq!(session["outcome"], "completed", "{session}");
    }
}
