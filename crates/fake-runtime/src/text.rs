//! Texts of a script with names in them, and what the names stand for.

use std::collections::HashMap;

use crate::compose::json_string;

/// A text of a script in which `${name}` stands for something known when it is played.
///
/// `${who}` is a session that `prompt $who` met, `${p.id}` the id of the request that was taken `as p`,
/// `${i}` the number of the round in a `repeat` and `${i-1}` that of the round before, `${env:NAME}` a variable of the environment. `$${` is a
/// `${` that stands for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

/// A request that the script has taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taken {
    /// Its id as JSON.
    pub(crate) id: String,
    /// The session it names.
    pub(crate) session: Option<String>,
    /// The id of the message that it brings, if it is a prompt.
    pub(crate) message: String,
    /// The text of the prompt.
    pub(crate) text: String,
}

/// What names stand for at a moment of a play.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Sessions that the client named.
    pub(crate) bound: HashMap<String, String>,
    /// Requests by the name they were taken as; the last one also under the empty name.
    pub(crate) taken: HashMap<String, Taken>,
    /// Ids (as JSON) of requests of the script's own, by name.
    pub(crate) asked: HashMap<String, String>,
    /// The rounds of the `repeat`s around the statement, the innermost last.
    pub(crate) rounds: Vec<u64>,
    /// Variables of the environment that the script names.
    pub(crate) variables: HashMap<String, String>,
}

impl Names {
    /// Keeps a request under its name.
    pub(crate) fn take(&mut self, name: Option<&str>, taken: Taken) {
        if let Some(name) = name {
            self.taken.insert(name.to_owned(), taken.clone());
        }
        self.taken.insert(String::new(), taken);
    }

    /// The request of this name; without one the last that was taken.
    pub(crate) fn request(&self, name: Option<&str>) -> Option<&Taken> {
        self.taken.get(name.unwrap_or_default())
    }

    /// What a name stands for: `true` when it is JSON already.
    fn value(&self, name: &str) -> (String, bool) {
        let round = || self.rounds.last().copied().unwrap_or_default();
        match name {
            "i" => return (round().to_string(), false),
            "i-1" => return (round().saturating_sub(1).to_string(), false),
            _ => {}
        }
        if let Some(variable) = name.strip_prefix("env:") {
            return (self.variables.get(variable).cloned().unwrap_or_default(), false);
        }
        if let Some((name, part)) = name.split_once('.') {
            let Some(taken) = self.taken.get(name) else {
                return (self.asked.get(name).cloned().unwrap_or_else(|| "null".to_owned()), part == "id");
            };
            return match part {
                "id" => (taken.id.clone(), true),
                "session" => (taken.session.clone().unwrap_or_default(), false),
                "message" => (taken.message.clone(), false),
                _ => (taken.text.clone(), false),
            };
        }
        // A session that the client has not named yet goes by its name in the script.
        (self.bound.get(name).cloned().unwrap_or_else(|| name.to_owned()), false)
    }
}

impl Text {
    /// The text with every name replaced, as it is.
    pub(crate) fn plain(&self, names: &Names) -> String {
        self.expand(|name| names.value(name).0)
    }

    /// JSON with every name replaced: a text by its escaped content, without quotes; an id by its JSON.
    pub(crate) fn json(&self, names: &Names) -> String {
        self.expand(|name| match names.value(name) {
            (json, true) => json,
            (text, false) => {
                let quoted = json_string(&text);
                quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
            }
        })
    }

    /// The names in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let found = std::cell::RefCell::new(Vec::new());
        self.expand(|name| {
            found.borrow_mut().push(name.to_owned());
            String::new()
        });
        found.into_inner()
    }

    fn expand(&self, value: impl Fn(&str) -> String) -> String {
        if !self.0.contains("${") {
            return self.0.clone();
        }
        let mut expanded = String::with_capacity(self.0.len());
        let mut rest = self.0.as_str();
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            let name = from.get(2..).and_then(|inner| inner.split_once('}'));
            match (before.strip_suffix('$'), name) {
                (Some(before), _) => {
                    expanded.push_str(before);
                    expanded.push_str("${");
                    rest = from.get(2..).unwrap_or_default();
                }
                (None, Some((name, after))) => {
                    expanded.push_str(before);
                    expanded.push_str(&value(name));
                    rest = after;
                }
                (None, None) => break,
            }
        }
        expanded.push_str(rest);
        expanded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_in_texts_and_in_json() {
        let mut names = Names::default();
        names.bound.insert("who".into(), "a\"b".into());
        names.rounds.push(7);
        let id = "\"x-1\"".to_owned();
        names.take(Some("p"), Taken { id, session: Some("s".into()), ..Taken::default() });
        let text = Text("${who} ${i} ${p.session} $${i} ${new}".into());
        assert_eq!(text.plain(&names), "a\"b 7 s ${i} new");
        assert_eq!(
            Text(r#"{"id":${p.id},"who":"${who}"}"#.into()).json(&names),
            r#"{"id":"x-1","who":"a\"b"}"#
        );
        assert_eq!(text.names(), ["who", "i", "p.session", "new"]);
        assert_eq!(Text("${open".into()).plain(&names), "${open");
    }
}
