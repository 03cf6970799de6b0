//! The lines that say what a correct client makes of a script.

use super::line::Line;
use super::{Expect, ScriptError, Signal};
use crate::expectations::{RequestOutcome, RuntimeEnd, TurnEnd};

/// An `expect` line, without its first word.
pub(super) fn expect(line: &mut Line) -> Result<Expect, ScriptError> {
    let kinds = ["turn", "open", "path", "request", "diagnostic", "stderr", "exit", "signal"];
    Ok(match line.one_of(&kinds)?.as_str() {
        "turn" => {
            let session = line.id()?;
            let (mut response, mut finish, mut end) = (None, None, TurnEnd::Idle);
            while line.words.len() > 0 {
                match line.one_of(&["final", "finish", "end"])?.as_str() {
                    "final" => response = Some(line.quoted("the final response in quotes")?),
                    "finish" => finish = Some(line.bare("a reason")?),
                    _ => {
                        end = match line.one_of(&["idle", "gone", "no-receipt"])?.as_str() {
                            "idle" => TurnEnd::Idle,
                            "gone" => TurnEnd::Gone,
                            _ => TurnEnd::NoReceipt,
                        }
                    }
                }
            }
            Expect::Turn { session, response, finish, end }
        }
        "open" => {
            let root = line.id()?;
            let mut children = Vec::new();
            while line.words.len() > 0 {
                children.push(line.id()?);
            }
            Expect::Open { root, children }
        }
        "path" => {
            let session = line.id()?;
            let mut path = Vec::new();
            while line.words.len() > 0 {
                path.push(line.id()?);
            }
            Expect::Path { session, path }
        }
        "request" => {
            let method = line.bare("a method")?;
            let outcome = match line.one_of(&["result", "error", "timeout", "gone"])?.as_str() {
                "result" => {
                    let raw = line.words.next().map(|word| word.shown()).unwrap_or_else(|| "{}".into());
                    let value = serde_json::from_str(&raw);
                    RequestOutcome::Result(value.map_err(|error| line.error(format!("`{raw}`: {error}")))?)
                }
                "error" => {
                    let code = line.integer("an error code")?;
                    let message =
                        if line.words.len() > 0 { Some(line.quoted("a message in quotes")?) } else { None };
                    RequestOutcome::Error { code, message }
                }
                "timeout" => RequestOutcome::Timeout,
                _ => RequestOutcome::Gone,
            };
            Expect::Request { method, outcome }
        }
        "diagnostic" => Expect::Diagnostic { name: line.bare("a name")?, count: line.number("a count")? },
        "stderr" => Expect::Stderr(line.quoted("a text in quotes")?),
        "exit" => Expect::Exit(RuntimeEnd::Exit(line.optional_code()?)),
        _ => {
            let name = line.bare("a signal")?;
            let signal = Signal::of(&name)
                .ok_or_else(|| line.wrong(&format!("knows no signal {name}"), "write KILL or ABRT"))?;
            Expect::Exit(RuntimeEnd::Signal(signal))
        }
    })
}
