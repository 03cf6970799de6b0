//! What is wrong with a manifest is said with its place, in words a person can act on.
#![expect(clippy::panic, reason = "helpers of tests fail a test by panicking")]

use offspring_pool::manifest::Manifest;

/// The text of the error that this manifest gives.
fn error(text: &str) -> String {
    match Manifest::from_str(text, "survey.yaml".as_ref()) {
        Ok(manifest) => panic!("accepted: {manifest:?}"),
        Err(error) => error.to_string(),
    }
}

/// Manifests, each with what is said about it.
const CASES: &[(&str, &str)] = &[
    (
        "",
        "survey.yaml:1:1: the manifest is empty; a pool needs at least `agents: {NAME: {type: command, …}}`",
    ),
    (
        "# nothing but a comment\n",
        "survey.yaml:1:1: the manifest is empty; a pool needs at least `agents: {NAME: {type: command, …}}`",
    ),
    ("just text", "survey.yaml:1:1: expected a mapping with `agents`, found text"),
    (
        "- a\n\
         - b\n",
        "survey.yaml:1:1: expected a mapping with `agents`, found a list",
    ),
    ("agents: {}\n", "survey.yaml:1:9: there is no agent; a pool needs at least one"),
    ("agents:\n", "survey.yaml:1:7: there is no agent; a pool needs at least one"),
    ("name: x\n", "survey.yaml:1:1: `agents` is missing"),
    ("agentz: {a: {type: command}}\n", "survey.yaml:1:1: unknown key `agentz`; did you mean `agents`?"),
    (
        "agents: {a: {type: command}}\n\
         colour: red\n",
        "survey.yaml:2:1: unknown key `colour`; known keys: `name`, `description`, `entry`, `agents`, `teams`, `workers`, `limits`, `storage`",
    ),
    (
        "agents:\n\
         \ta: {type: command}\n",
        "survey.yaml:2:1: a tab in the indentation; YAML wants spaces",
    ),
    (
        "agents:\n\
         \x20 a:\n\
         \x20   type: command\n\
         \t  description: x\n",
        "survey.yaml:4:1: a tab in the indentation; YAML wants spaces",
    ),
    ("agents: {a: {type: command}\n", "survey.yaml:1:9: no valid YAML: unclosed bracket '{'"),
    (
        "agents: {a: {type: command}}\n\
         description: one: two\n",
        "survey.yaml:2:17: no valid YAML: mapping values are not allowed in this context; put text that contains `: ` in quotes",
    ),
    (
        "agents: {a: {type: command}}\n\
         ---\n\
         agents: {b: {type: command}}\n",
        "survey.yaml:3:1: a second document starts here; one file holds one manifest",
    ),
    (
        "agents: {a: {type: command}}\n\
         agents: {b: {type: command}}\n",
        "survey.yaml:2:1: `agents` stands here for the second time; the first is in line 1",
    ),
    (
        "agents:\n\
         \x20 a: {type: command}\n\
         \x20 a: {type: command}\n",
        "survey.yaml:3:3: `a` stands here for the second time; the first is in line 2",
    ),
    (
        "agents: {a: {type: *kind}}\n",
        "survey.yaml:1:20: `*` names an anchor that nothing before it defines; write `&name` at the value that is meant, or put the text in quotes",
    ),
    (
        "agents: {a: &a {type: command, environment: *a}}\n",
        "survey.yaml:1:45: this value contains itself; take the `*` out",
    ),
    (
        "agents: {a: {}}\n",
        "survey.yaml:1:13: `agents.a.type` is missing; say what runs it; for a local program: `type: command`",
    ),
    (
        "agents: {a: command}\n",
        "survey.yaml:1:13: `agents.a`: expected a mapping, found text; write `type: command` and what belongs to it",
    ),
    ("agents: [a, b]\n", "survey.yaml:1:9: `agents`: expected a mapping, found a list"),
    ("agents: {a: {type: [command]}}\n", "survey.yaml:1:20: `agents.a.type`: expected text, found a list"),
    (
        "agents: {a: {type: command}}\n\
         limits: {max_depth: ten}\n",
        "survey.yaml:2:21: `limits.max_depth`: expected a whole number, found text",
    ),
    (
        "agents: {a: {type: command}}\n\
         limits: {max_depth: \"10\"}\n",
        "survey.yaml:2:21: `limits.max_depth`: expected a whole number, found text; take the quotes away",
    ),
    (
        "agents: {a: {type: command}}\n\
         limits: {max_depth: -1}\n",
        "survey.yaml:2:21: `limits.max_depth`: expected a whole number from 0 to 4294967295, found `-1`",
    ),
    (
        "agents: {a: {type: command}}\n\
         limits: {max_depth: 1.5}\n",
        "survey.yaml:2:21: `limits.max_depth`: expected a whole number from 0 to 4294967295, found `1.5`",
    ),
    (
        "agents: {a: {type: command}}\n\
         limits: {max_wall_ms: 30m}\n",
        "survey.yaml:2:23: `limits.max_wall_ms`: expected a whole number of milliseconds, found text",
    ),
    (
        "agents: {a: {type: command}}\n\
         limits: {max_wall: 30m}\n",
        "survey.yaml:2:10: unknown key `max_wall`; did you mean `max_wall_ms`?",
    ),
    (
        "agents: {a: {type: command}}\n\
         limits: {max_depth: 0, max_queued: 0}\n",
        "survey.yaml:2:21: `max_depth` is 0, and nothing could run; say 1 or more, or leave it out for the default\n\
         survey.yaml:2:36: `max_queued` is 0, and nothing could run; say 1 or more, or leave it out for the default",
    ),
    (
        "agents: {coordinator: {type: command}}\n\
         entry: cordinator\n",
        "survey.yaml:2:8: entry `cordinator` is no agent and no team of this pool; did you mean `coordinator`?",
    ),
    (
        "agents: {a: {type: command}}\n\
         workers: [b]\n",
        "survey.yaml:2:11: worker `b` is no agent and no team of this pool; there are: `a`",
    ),
    (
        "agents: {a: {type: command, workers: [a, a]}}\n",
        "survey.yaml:1:42: worker `a` stands here for the second time; once is enough",
    ),
    (
        "agents: {a: {type: command, workers: a}}\n",
        "survey.yaml:1:38: `agents.a.workers`: expected a list, found text; put it in square brackets",
    ),
    (
        "agents: {a: {type: command, workers: [{type: team, name: a}]}}\n",
        "survey.yaml:1:46: `a` is an agent, and `type` says `team`; leave `type` out",
    ),
    (
        "agents: {a: {type: command, workers: [{type: acp_agent, name: a}]}}\n",
        "survey.yaml:1:46: `agents.a.workers[0].type`: `acp_agent` is none of its values; its values: `agent`, `team`",
    ),
    (
        "agents: {a: {type: command, workers: [{nme: a}]}}\n",
        "survey.yaml:1:40: unknown key `nme`; did you mean `name`?",
    ),
    (
        "agents: {a: {type: command, workers: [{name: t, type: agent}]}}\n\
         entry: a\n\
         teams: {t: {mode: parallel, members: [a]}}\n",
        "survey.yaml:1:55: `t` is a team, and `type` says `agent`; leave `type` out",
    ),
    (
        "agents: {a: {type: command}}\n\
         entry: a\n\
         teams: {a: {mode: parallel, members: [a]}}\n",
        "survey.yaml:3:9: `a` is the name of an agent and of a team; rename one of them; the agent is in line 1",
    ),
    (
        "agents: {a: {type: command}}\n\
         entry: a\n\
         teams: {t: {mode: parallel, members: [t]}}\n",
        "survey.yaml:3:39: team `t` contains itself: t → t; take this member out",
    ),
    (
        "agents: {a: {type: command}}\n\
         entry: a\n\
         teams:\n\
         \x20 one: {mode: parallel, members: [a, two]}\n\
         \x20 two: {mode: sequential, members: [three]}\n\
         \x20 three: {mode: parallel, members: [{name: one}]}\n",
        "survey.yaml:6:44: team `one` contains itself: one → two → three → one; take this member out",
    ),
    (
        "agents: {a: {type: command}}\n\
         entry: a\n\
         teams: {t: {mode: paralel, members: [a]}}\n",
        "survey.yaml:3:19: `teams.t.mode`: `paralel` is none of its values; did you mean `parallel`?",
    ),
    (
        "agents: {a: {type: command}}\n\
         entry: a\n\
         teams: {t: {members: [a]}}\n",
        "survey.yaml:3:12: `teams.t.mode` is missing",
    ),
    (
        "agents: {a: {type: command}}\n\
         entry: a\n\
         teams: {t: {mode: sequential, members: [a, b], require_all: yes}}\n",
        "survey.yaml:3:44: member `b` is no agent and no team of this pool; there are: `a`, `t`\n\
         survey.yaml:3:61: `teams.t.require_all`: expected `true` or `false`, found text; write `true`",
    ),
    (
        "agents: {a: {type: command}}\n\
         entry: a\n\
         teams: {t: {mode: parallel, members: [a], require_all: true}}\n",
        "survey.yaml:3:56: `require_all` has no meaning for the parallel team `t`; leave it out, or say `mode: sequential`",
    ),
    ("agents: {\"\": {type: command}}\n", "survey.yaml:1:10: the name `` is empty"),
    ("agents: {a/b: {type: command}}\n", "survey.yaml:1:10: the name `a/b` contains `/`; for example `a_b`"),
    (
        "agents: {\"two words\": {type: command}}\n",
        "survey.yaml:1:10: the name `two words` contains whitespace; for example `two_words`",
    ),
    (
        "agents: {ask_me: {type: command}}\n",
        "survey.yaml:1:10: the name `ask_me` starts with `ask_`, as the tools that ask a worker do; for example `me`",
    ),
    (
        "agents: {status: {type: command}, a: {type: command}}\n\
         entry: a\n\
         teams: {cancel: {mode: parallel, members: [a]}}\n",
        "survey.yaml:1:10: the name `status` is a word of `offspring task`, which could not ask it; for example `the-status`\n\
         survey.yaml:3:9: the name `cancel` is a word of `offspring task`, which could not ask it; for example `the-cancel`",
    ),
    (
        "agents: {-x: {type: command}}\n",
        "survey.yaml:1:10: the name `-x` starts with `-` and would be taken for an option; for example `x`",
    ),
    (
        "agents: {\"a\\e[31m\": {type: command}}\n",
        "survey.yaml:1:10: the name `a\\u{1b}[31m` contains a control character; for example `a[31m`",
    ),
    (
        "agents: {a: {type: command, environment: {\"A=B\": x, OFFSPRING_TOKEN: x, LIST: [secret], NONE: , F: {form: X}}}}\n",
        "survey.yaml:1:43: `A=B` cannot be the name of a variable; no `=`, not empty\n\
         survey.yaml:1:53: the variable `OFFSPRING_TOKEN` is set by the pool itself; choose a name that does not start with `OFFSPRING_`\n\
         survey.yaml:1:79: `agents.a.environment.LIST`: expected text or a mapping, found a list\n\
         survey.yaml:1:93: `agents.a.environment.NONE`: expected text or a mapping, found nothing\n\
         survey.yaml:1:101: unknown key `form`; did you mean `from`?",
    ),
    (
        "agents: {a: {type: command, environment: hunter2}}\n",
        "survey.yaml:1:42: `agents.a.environment`: expected a mapping, found text",
    ),
    (
        "agents: {a: {type: command}}\n\
         storage: {type: memory, path: x.db}\n",
        "survey.yaml:2:31: storage in memory has no path; leave `path` out, or say `type: sqlite`",
    ),
    (
        "agents: {a: {type: command}}\n\
         storage: {}\n",
        "survey.yaml:2:10: `storage` says nothing; say `path: FILE` or `type: memory`",
    ),
    (
        "agents: {a: {type: command}}\n\
         storage: {path: ~/x.db}\n",
        "survey.yaml:2:17: `~` is not replaced in a manifest; write the path in full, or one relative to this file",
    ),
    (
        "agents: {a: {type: command}}\n\
         storage: {type: postgres}\n",
        "survey.yaml:2:17: `storage.type`: `postgres` is none of its values; its values: `sqlite`, `memory`",
    ),
    (
        "agents: {a: {type: command}}\n\
         name: \"\"\n",
        "survey.yaml:2:7: the name of the pool is empty; say `name: …`",
    ),
    (
        "agents: {a: {type: command}}\n\
         ? [x]\n\
         : 1\n",
        "survey.yaml:2:3: this key is no text; a key is a single word",
    ),
    (
        "agents: {a: {type: command, limits: {max_depth: 11, max_wall_ms: 5}}}\n",
        "survey.yaml:1:49: `max_depth` is 11, and the pool allows 10; an agent can only narrow; raise the limit of the pool",
    ),
    (
        "agents: {a: {type: x, limits: {max_output_bytes: 9, max_silence_ms: 5}}}\nlimits: {max_silence_ms: 4, max_output_bytes: 9}\n",
        "survey.yaml:1:69: `max_silence_ms` is 5, and the pool allows 4; an agent can only narrow; raise the limit of the pool",
    ),
];

#[test]
fn every_problem_is_said_with_its_place_and_what_to_do() {
    for (text, expected) in CASES {
        assert_eq!(error(text), *expected, "for this manifest:\n{text}");
    }
}

#[test]
fn no_message_is_longer_than_six_lines_or_names_a_type_of_ours() {
    for (text, _) in CASES {
        let error = error(text);
        assert!(error.lines().count() <= 6, "{error}");
        for word in ["struct", "enum", "File", "Table", "Option", "u32", "u64", "serde", "visitor"] {
            assert!(!error.contains(word), "`{word}` in: {error}");
        }
    }
}

#[test]
fn w10_a_value_of_the_environment_is_in_no_message_and_no_debug_output() {
    for environment in ["hunter2", "[hunter2]", "{KEY: [hunter2]}", "{KEY: {from: [hunter2]}}"] {
        let text = format!("agents: {{a: {{type: command, environment: {environment}}}}}\n");
        assert!(!error(&text).contains("hunter2"), "{}", error(&text));
    }
    let text = "agents: {a: {type: command, key: hunter2, environment: {KEY: hunter2}}}\n";
    let manifest = Manifest::from_str(text, "survey.yaml".as_ref()).unwrap();
    assert!(!format!("{manifest:?}").contains("hunter2"), "{manifest:?}");
}

#[test]
fn everything_that_is_wrong_is_found_at_once() {
    let text = "\
agents:
  a: {workers: [nobody]}
  b: {type: command, limits: {max_depth: x, max_descendants: y}}
entry: c
teams:
  t: {mode: both, members: [a, {nam: b}]}
limits: {max_active: 0}
storage: {type: tape}
unknown: 1
";
    let error = Manifest::from_str(text, "survey.yaml".as_ref()).unwrap_err();
    let lines: Vec<u32> = error.problems().iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [2, 3, 3, 4, 6, 6, 7, 8, 9], "{:#?}", error.problems());
    assert_eq!(error.to_string().lines().count(), 6);
    assert!(error.to_string().ends_with("survey.yaml: and 4 more problems"), "{error}");
}
