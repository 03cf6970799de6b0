//! The grammar: what a prompt tells the model to do, one directive a line. Other lines are ignored.
//!
//! | line | the model |
//! |---|---|
//! | `SAY text` | answers with the text |
//! | `CHUNKS n [REASON m]` | answers in n pieces, after m pieces of reasoning |
//! | `TOOL name {json}` | calls a tool; more such lines are more messages, one after the other's results |
//! | `TOOLS name {json}` | the same, but neighbouring lines are calls of one message |
//! | `DELEGATE n [option…]` | calls `subagent` with `DELEGATE n-1 [option…]`; `DELEGATE 0` answers `leaf done` |
//! | `PARALLEL k [DELEGATE n] [option…]` | calls `subagent` k times in one message |
//! | `HTTP status [xN] [RETRY_AFTER s] [text]` | answers with that status; with `xN` the first N times only |
//! | `DROP [xN]`, `NODONE`, `GARBAGE` | breaks the connection off, ends the stream without its last event, sends what is no JSON |
//! | `FINISH reason` | answers `partial` and stops for that reason (`length`: the token limit) |
//! | `EMPTY` | answers without any content |
//! | `WAIT ms` | waits before the next directive's answer |
//! | `GATE name` | waits before the next directive's answer until the gate is opened |
//!
//! Options: `KIDS k` (k children at each level), `FORK` (`subagent_fork` instead), and for the leaves `SLEEP ms` and
//! `GATE name`. Siblings are told apart by a tag, `#1`, `#2` …, which a leaf repeats in its answer and appends to the
//! name of its gate (`GATE g` of the second child waits for `g#2`).
//!
//! Directives are worked off in their order: calls of tools until there is a result for each, then the first that
//! answers. After the last one the model says what the tools returned.

use std::time::Duration;

use serde_json::{Value, json};

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its name.
    pub tool: String,
    /// Its arguments, as the text of a JSON object.
    pub arguments: String,
}

/// What one answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A text.
    Say(String),
    /// These calls, in one message.
    Calls(Vec<Call>),
    /// This text, followed by what the tools returned.
    Report(String),
    /// A text in so many pieces, after so many of reasoning.
    Pieces {
        /// Pieces of text.
        texts: u32,
        /// Pieces of reasoning before it.
        thoughts: u32,
    },
    /// A text that stops for this reason.
    Finish(String),
    /// Nothing at all.
    Empty,
    /// A text whose stream is broken.
    Break {
        /// In this way.
        fault: Fault,
        /// How often; always, if none.
        times: Option<u32>,
    },
    /// An error of the server.
    Fail {
        /// The HTTP status.
        status: u16,
        /// How often; always, if none.
        times: Option<u32>,
        /// Seconds for the `retry-after` header.
        retry_after: Option<u32>,
        /// The error's message.
        message: String,
    },
}

/// How a stream goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection is closed amid the text.
    Drop,
    /// The last event is missing.
    NoEnd,
    /// One event is no JSON.
    Garbage,
}

/// One answer and what comes before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// How long to wait.
    pub wait: Duration,
    /// What to wait for.
    pub gate: Option<String>,
    /// What to answer.
    pub act: Act,
}

/// The steps that a text asks for; none if it holds no directive.
#[must_use]
pub fn parse(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut wait, mut gate) = (Duration::ZERO, None);
    let mut is_in_batch = false;
    for line in text.lines() {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let was_in_batch = std::mem::take(&mut is_in_batch);
        let acts = match word {
            "WAIT" => {
                wait = Duration::from_millis(rest.parse().unwrap_or_default());
                continue;
            }
            "GATE" => {
                gate = Some(rest.to_owned());
                continue;
            }
            "TOOLS" => {
                is_in_batch = true;
                let call = call(rest);
                match steps.last_mut() {
                    Some(Step { act: Act::Calls(calls), .. }) if was_in_batch => {
                        calls.push(call);
                        continue;
                    }
                    _ => vec![Act::Calls(vec![call])],
                }
            }
            "TOOL" => vec![Act::Calls(vec![call(rest)])],
            "DELEGATE" | "PARALLEL" => {
                let (acts, leaf) = delegate(word, rest);
                if let Some(leaf) = leaf {
                    wait += leaf.wait;
                    gate = leaf.gate.or(gate);
                }
                acts
            }
            _ => match plain(word, rest) {
                Some(act) => vec![act],
                None => continue,
            },
        };
        for act in acts {
            steps.push(Step { wait: std::mem::take(&mut wait), gate: gate.take(), act });
        }
    }
    // A wait before the answer that there is without any directive.
    if steps.is_empty() && (gate.is_some() || wait > Duration::ZERO) {
        steps.push(Step { wait, gate, act: Act::Say("hi".to_owned()) });
    }
    steps
}

/// The directives that are one answer each.
fn plain(word: &str, rest: &str) -> Option<Act> {
    Some(match word {
        "SAY" => Act::Say(rest.to_owned()),
        "CHUNKS" => Act::Pieces {
            texts: rest.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(1),
            thoughts: number_after(rest, "REASON").unwrap_or(0),
        },
        "HTTP" => failure(rest),
        "DROP" => Act::Break { fault: Fault::Drop, times: times(rest) },
        "NODONE" => Act::Break { fault: Fault::NoEnd, times: times(rest) },
        "GARBAGE" => Act::Break { fault: Fault::Garbage, times: times(rest) },
        "FINISH" => Act::Finish(rest.split_whitespace().next().unwrap_or("length").to_owned()),
        "EMPTY" => Act::Empty,
        _ => return None,
    })
}

fn call(rest: &str) -> Call {
    let (tool, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, "{}"));
    Call { tool: tool.to_owned(), arguments: arguments.trim().to_owned() }
}

fn failure(rest: &str) -> Act {
    let mut words = rest.split_whitespace().peekable();
    let Some(status) = words.next().and_then(|status| status.parse().ok()) else {
        // Whoever wrote the script finds it in the turn's error.
        return Act::Fail {
            status: 400,
            times: None,
            retry_after: None,
            message: format!("HTTP needs a status, not `{rest}`"),
        };
    };
    let times = words.next_if(|word| times(word).is_some()).and_then(times);
    let retry_after = words.next_if_eq(&"RETRY_AFTER").and_then(|_| words.next());
    let message: Vec<&str> = words.collect();
    let message =
        if message.is_empty() { format!("the model's server says {status}") } else { message.join(" ") };
    Act::Fail { status, times, retry_after: retry_after.and_then(|seconds| seconds.parse().ok()), message }
}

/// `xN`.
fn times(word: &str) -> Option<u32> {
    word.strip_prefix('x')?.parse().ok()
}

/// What a leaf does before it answers.
struct Leaf {
    wait: Duration,
    gate: Option<String>,
}

/// `DELEGATE n …` and `PARALLEL k …`, which differ in how many are called for how deep a tree.
fn delegate(word: &str, rest: &str) -> (Vec<Act>, Option<Leaf>) {
    let first = rest.split_whitespace().next().and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    let tag = rest.split_whitespace().find(|word| word.starts_with('#'));
    let (count, depth) = match word {
        "PARALLEL" => (first, number_after(rest, "DELEGATE").unwrap_or(0)),
        _ => match first.checked_sub(1) {
            Some(depth) => (number_after(rest, "KIDS").unwrap_or(1), depth),
            None => {
                let tag = tag.unwrap_or_default();
                let gate = word_after(rest, "GATE").map(|gate| format!("{gate}{tag}"));
                let wait = Duration::from_millis(number_after(rest, "SLEEP").unwrap_or(0).into());
                let text = format!("leaf done {tag}");
                return (vec![Act::Say(text.trim_end().to_owned())], Some(Leaf { wait, gate }));
            }
        },
    };
    let mut options = String::new();
    for option in ["KIDS", "SLEEP", "GATE"] {
        if let Some(value) = word_after(rest, option) {
            options.push_str(&format!(" {option} {value}"));
        }
    }
    let is_fork = rest.split_whitespace().any(|word| word == "FORK");
    if is_fork {
        options.push_str(" FORK");
    }
    let calls = (1..=count).map(|index| {
        // A grandchild's tag begins with its parent's, so that every leaf of a tree has one of its own.
        let tag = match tag {
            _ if count == 1 => tag.unwrap_or_default().to_owned(),
            Some(tag) => format!("{tag}.{index}"),
            None => format!("#{index}"),
        };
        let prompt = format!("DELEGATE {depth}{options} {tag}");
        let arguments: Value =
            json!({ "description": format!("level {depth} {tag}").trim_end(), "prompt": prompt.trim_end() });
        Call {
            tool: if is_fork { "subagent_fork" } else { "subagent" }.to_owned(),
            arguments: arguments.to_string(),
        }
    });
    let report = if word == "PARALLEL" { "parallel done".to_owned() } else { format!("level {first} done") };
    (vec![Act::Calls(calls.collect()), Act::Report(report)], None)
}

fn word_after<'a>(rest: &'a str, name: &str) -> Option<&'a str> {
    let mut words = rest.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()
}

fn number_after(rest: &str, name: &str) -> Option<u32> {
    word_after(rest, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acts(text: &str) -> Vec<Act> {
        parse(text).into_iter().map(|step| step.act).collect()
    }

    fn prompts(act: &Act) -> Vec<String> {
        let Act::Calls(calls) = act else { panic!("{act:?}") };
        let prompt = |call: &Call| {
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            format!("{}: {}", call.tool, arguments["prompt"].as_str().unwrap())
        };
        calls.iter().map(prompt).collect()
    }

    #[test]
    fn a_prompt_without_a_directive_has_no_steps() {
        assert!(parse("please SAY something\n  Say it\n").is_empty());
    }

    #[test]
    fn delegation_hands_its_options_down_and_the_leaf_keeps_them() {
        let steps = acts("DELEGATE 2 KIDS 2 SLEEP 5 GATE g FORK");
        let below = [
            "subagent_fork: DELEGATE 1 KIDS 2 SLEEP 5 GATE g FORK #1",
            "subagent_fork: DELEGATE 1 KIDS 2 SLEEP 5 GATE g FORK #2",
        ];
        assert_eq!(prompts(&steps[0]), below);
        assert_eq!(steps[1], Act::Report("level 2 done".to_owned()));
        let leaves = acts("DELEGATE 1 KIDS 2 GATE g #2");
        assert_eq!(
            prompts(&leaves[0]),
            ["subagent: DELEGATE 0 KIDS 2 GATE g #2.1", "subagent: DELEGATE 0 KIDS 2 GATE g #2.2"]
        );
        let leaf = parse("DELEGATE 0 KIDS 2 SLEEP 5 GATE g #2.1");
        assert_eq!(
            leaf,
            [Step {
                wait: Duration::from_millis(5),
                gate: Some("g#2.1".to_owned()),
                act: Act::Say("leaf done #2.1".to_owned())
            }]
        );
    }

    #[test]
    fn parallel_children_are_leaves_unless_told_otherwise() {
        assert_eq!(prompts(&acts("PARALLEL 2")[0]), ["subagent: DELEGATE 0 #1", "subagent: DELEGATE 0 #2"]);
        assert_eq!(prompts(&acts("PARALLEL 1 DELEGATE 3")[0]), ["subagent: DELEGATE 3"]);
    }

    #[test]
    fn neighbouring_tools_lines_are_one_message() {
        let call = |name: &str| Call { tool: name.to_owned(), arguments: "{}".to_owned() };
        let text = "TOOL a\nTOOLS b {}\nTOOLS c\nTOOL d\nTOOLS e\nSAY x";
        let expected = [
            Act::Calls(vec![call("a")]),
            Act::Calls(vec![call("b"), call("c")]),
            Act::Calls(vec![call("d")]),
            Act::Calls(vec![call("e")]),
            Act::Say("x".to_owned()),
        ];
        assert_eq!(acts(text), expected);
    }

    #[test]
    fn waits_belong_to_the_directive_after_them() {
        let steps = parse("WAIT 7\nTOOL a\nGATE g\nSAY x\n");
        assert_eq!((steps[0].wait.as_millis(), &steps[0].gate), (7, &None));
        assert_eq!((steps[1].wait.as_millis(), steps[1].gate.as_deref()), (0, Some("g")));
        assert_eq!(parse("GATE g")[0].act, Act::Say("hi".to_owned()));
    }

    #[test]
    fn a_failure_has_a_status_a_count_and_a_message() {
        let fail = |status, times, retry_after, message: &str| Act::Fail {
            status,
            times,
            retry_after,
            message: message.to_owned(),
        };
        assert_eq!(acts("HTTP 429 x1 RETRY_AFTER 2 slow down"), [fail(429, Some(1), Some(2), "slow down")]);
        assert_eq!(acts("HTTP 500"), [fail(500, None, None, "the model's server says 500")]);
        assert_eq!(acts("HTTP often"), [fail(400, None, None, "HTTP needs a status, not `often`")]);
    }
}
