//! The one place that knows what runtimes say in words: 0.2.1rc2 gives every error the code -32603.

use offspring_protocol::rpc::{ErrorObject, code};

/// What is known of an error that a runtime answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerError {
    /// It does not know the method.
    UnknownMethod,
    /// `initialize` has to come first.
    NotInitialized,
    /// There is no such session, or none that can be asked this.
    UnknownSession,
    /// The session is stored, or belongs to a child: resume it first.
    SessionExists,
    /// The session is open here already, or in another process.
    SessionInUse,
    /// It is shutting down.
    ShuttingDown,
    /// The provider, the model or a setting of it is not to be had.
    BadModel,
    /// The directory does not exist.
    BadDirectory,
    /// Something else.
    Other,
}

/// What an error of a runtime means.
pub(crate) fn classify(error: &ErrorObject) -> PeerError {
    let text = error.message.as_str();
    let has = |part: &str| text.contains(part);
    if error.code == code::METHOD_NOT_FOUND
        || text.starts_with("unknown DeepSeek Harness SDK runtime method:")
        || text.starts_with("unknown method")
    {
        PeerError::UnknownMethod
    } else if has("is not initialized") {
        PeerError::NotInitialized
    } else if has("already open or opening") || has("already owned by") {
        PeerError::SessionInUse
    } else if text.starts_with("session \"") && has("already exists") {
        PeerError::SessionExists
    } else if text.starts_with("unknown SDK session") || (text.starts_with("session \"") && has("not found"))
    {
        PeerError::UnknownSession
    } else if has("is shutting down") {
        PeerError::ShuttingDown
    } else if text.starts_with("no adapter registered for provider") || text.starts_with("provider \"") {
        PeerError::BadModel
    } else if text.starts_with("working-directory:") {
        PeerError::BadDirectory
    } else {
        PeerError::Other
    }
}

/// The lines of stderr that say that something was not loaded, if there are any.
pub(crate) fn not_activated(stderr: &str) -> Option<String> {
    let mut lines = stderr.lines().skip_while(|line| !line.contains("did not activate")).peekable();
    lines.peek()?;
    // The lines after it name what and why.
    Some(lines.take(6).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_that_the_real_runtime_was_heard_to_say_is_known() {
        let heard = [
            ("unknown DeepSeek Harness SDK runtime method: session/wait", PeerError::UnknownMethod),
            ("SDK server is not initialized", PeerError::NotInitialized),
            ("unknown SDK session: nope", PeerError::UnknownSession),
            ("session \"missing\" not found", PeerError::UnknownSession),
            ("session \"saved\" already exists", PeerError::SessionExists),
            ("SDK session is already open or opening: saved", PeerError::SessionInUse),
            ("session \"shared\" is already owned by an active write handle", PeerError::SessionInUse),
            ("SDK server is shutting down", PeerError::ShuttingDown),
            ("no adapter registered for provider \"nope\"", PeerError::BadModel),
            (
                "provider \"deepseek-official\" model \"m\" does not support reasoning effort \"bogus\"",
                PeerError::BadModel,
            ),
            ("working-directory: directory does not exist: \"nope\"", PeerError::BadDirectory),
            ("blocks.filter is not a function", PeerError::Other),
            // Half of a text that is known is another one.
            ("session \"s\" is odd", PeerError::Other),
            ("tool \"t\" already exists", PeerError::Other),
            ("tool \"t\" not found", PeerError::Other),
        ];
        for (text, kind) in heard {
            assert_eq!(classify(&ErrorObject::new(-32603, text)), kind, "{text}");
        }
        assert_eq!(classify(&ErrorObject::new(-32601, "no")), PeerError::UnknownMethod);
    }

    #[test]
    fn a_plugin_that_is_not_there_is_seen_in_stderr() {
        let said = "start\ndsh: warning: 2 entries did not activate\n  a: bad value\n";
        assert_eq!(
            not_activated(said).as_deref(),
            Some("dsh: warning: 2 entries did not activate\n  a: bad value")
        );
        assert_eq!(not_activated("all is well"), None);
    }
}
