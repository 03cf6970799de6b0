//! The behaviour: a conversation in, an answer out. Knows no wire format.

use std::collections::HashMap;

use super::script::{Act, Call, Fault, Step, parse};

/// What was said so far, as far as the model looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A text of the user, or one that the runtime put into the user's mouth.
    User(String),
    /// The model called tools.
    Called,
    /// The model answered with a text only.
    Said,
    /// A tool returned this.
    Returned(String),
}

/// Why a message ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It is complete.
    End,
    /// It waits for tools.
    Tools,
    /// The token limit.
    Length,
    /// Another reason, by its name on the wire.
    Other(String),
}

/// A message of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its reasoning, in pieces.
    pub thoughts: Vec<String>,
    /// Its text, in pieces.
    pub pieces: Vec<String>,
    /// Its calls.
    pub calls: Vec<Call>,
    /// Why it ends.
    pub stop: Stop,
    /// How its stream goes wrong.
    pub fault: Option<Fault>,
}

/// What the model answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A message.
    Message(Message),
    /// An error of its server.
    Error {
        /// The HTTP status.
        status: u16,
        /// Seconds for the `retry-after` header.
        retry_after: Option<u32>,
        /// What the error says.
        message: String,
    },
}

/// An answer and what comes before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// How long to wait, and for which gate.
    pub step: Step,
    /// The answer.
    pub answer: Answer,
}

/// How often each failing step has failed: the one thing the model remembers between requests.
#[derive(Debug, Default)]
pub struct Failures(HashMap<String, u32>);

/// What the model answers in this session.
#[must_use]
pub fn reply(session: &str, entries: &[Entry], failures: &mut Failures) -> Reply {
    let text = |text: &str| Act::Say(text.to_owned());
    let newest = entries.iter().enumerate().rev().find_map(|(index, entry)| match entry {
        Entry::User(text) => Some((index, text, parse(text))).filter(|(_, _, steps)| !steps.is_empty()),
        _ => None,
    });
    let Some((index, script, steps)) = newest else { return finished(plain(text("hi")), &[]) };
    let after = entries.get(index + 1..).unwrap_or_default();
    if after.contains(&Entry::Said) {
        // The script was worked off; what came since is a notice of the runtime.
        return finished(plain(text("noted")), &[]);
    }
    let returned = after.iter().filter_map(|entry| match entry {
        Entry::Returned(text) => Some(text.as_str()),
        _ => None,
    });
    let returned: Vec<&str> = returned.collect();
    let mut called = after.iter().filter(|entry| **entry == Entry::Called).count();
    for (number, step) in steps.into_iter().enumerate() {
        match &step.act {
            Act::Calls(_) if called > 0 => called -= 1,
            Act::Fail { times: Some(times), .. } | Act::Break { times: Some(times), .. } => {
                let seen = failures.0.entry(format!("{session}\n{number}\n{script}")).or_default();
                if *seen < *times {
                    *seen += 1;
                    return finished(step, &returned);
                }
            }
            _ => return finished(step, &returned),
        }
    }
    finished(plain(Act::Report("done".to_owned())), &returned)
}

fn plain(act: Act) -> Step {
    Step { wait: std::time::Duration::ZERO, gate: None, act }
}

fn finished(step: Step, returned: &[&str]) -> Reply {
    let said = |text: String, stop| Message {
        thoughts: Vec::new(),
        pieces: vec![text],
        calls: Vec::new(),
        stop,
        fault: None,
    };
    let message = match &step.act {
        Act::Say(text) => said(text.clone(), Stop::End),
        Act::Report(text) if returned.is_empty() => said(text.clone(), Stop::End),
        Act::Report(text) => said(format!("{text}: {}", returned.join(" | ")), Stop::End),
        Act::Calls(calls) => {
            Message { pieces: Vec::new(), calls: calls.clone(), ..said(String::new(), Stop::Tools) }
        }
        Act::Pieces { texts, thoughts } => Message {
            thoughts: (0..*thoughts).map(|index| format!("thought{index} ")).collect(),
            pieces: (0..*texts).map(|index| format!("word{index} ")).collect(),
            ..said(String::new(), Stop::End)
        },
        Act::Finish(reason) => {
            let stop = match reason.as_str() {
                "length" => Stop::Length,
                "stop" => Stop::End,
                other => Stop::Other(other.to_owned()),
            };
            said("partial".to_owned(), stop)
        }
        Act::Empty => Message { pieces: Vec::new(), ..said(String::new(), Stop::End) },
        Act::Break { fault, .. } => {
            Message { fault: Some(*fault), ..said("an answer that breaks".to_owned(), Stop::End) }
        }
        Act::Fail { status, retry_after, message, .. } => {
            let answer =
                Answer::Error { status: *status, retry_after: *retry_after, message: message.clone() };
            return Reply { answer, step };
        }
    };
    Reply { answer: Answer::Message(message), step }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Entry {
        Entry::User(text.to_owned())
    }

    fn returned(text: &str) -> Entry {
        Entry::Returned(text.to_owned())
    }

    fn said(entries: &[Entry]) -> String {
        match reply("s", entries, &mut Failures::default()).answer {
            Answer::Message(message) if message.calls.is_empty() => message.pieces.concat(),
            Answer::Message(message) => format!("calls {}", message.calls[0].tool),
            Answer::Error { status, .. } => status.to_string(),
        }
    }

    #[test]
    fn steps_follow_each_other_as_their_tools_return() {
        let mut entries = vec![user("TOOL a\nTOOL b"), user("Your parent agent id is \"r\".")];
        assert_eq!(said(&entries), "calls a");
        entries.extend([Entry::Called, returned("one")]);
        assert_eq!(said(&entries), "calls b");
        entries.extend([Entry::Called, returned("two")]);
        assert_eq!(said(&entries), "done: one | two");
    }

    #[test]
    fn a_notice_after_the_answer_is_noted_and_a_new_prompt_begins_again() {
        let mut entries = vec![user("SAY one"), Entry::Said, user("Background subagent x finished.")];
        assert_eq!(said(&entries), "noted");
        entries.push(user("SAY two"));
        assert_eq!(said(&entries), "two");
        assert_eq!(said(&[user("good morning")]), "hi");
    }

    #[test]
    fn a_failure_that_is_counted_ends_after_so_many_requests_of_its_session() {
        let mut failures = Failures::default();
        let entries = [user("HTTP 500 x2 no\nSAY better")];
        let mut ask = |session: &str| match reply(session, &entries, &mut failures).answer {
            Answer::Error { status, .. } => status.to_string(),
            Answer::Message(message) => message.pieces.concat(),
        };
        assert_eq!([ask("a"), ask("b"), ask("a"), ask("a")], ["500", "500", "500", "better"]);
    }
}
