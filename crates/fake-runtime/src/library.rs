//! The scripts that come with the kit, at least one for every rule T and W.

use crate::script::{Script, ScriptError};

/// A script of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LibraryScript {
    /// Its name, which begins with a rule: `t04-a-late-finish-goes-to-its-old-parent`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

impl LibraryScript {
    /// The script.
    ///
    /// # Errors
    /// None in a released kit: a test parses them all.
    pub fn parse(&self) -> Result<Script, ScriptError> {
        Script::parse(self.text)
    }
}

/// The script whose name is this or begins with it; `None` when that is none or more than one.
#[must_use]
pub fn find(name: &str) -> Option<LibraryScript> {
    let name = name.strip_suffix(".script").unwrap_or(name);
    if let Some(exact) = SCRIPTS.iter().find(|script| script.name == name) {
        return Some(*exact);
    }
    let mut found = SCRIPTS.iter().filter(|script| script.name.starts_with(name));
    found.next().filter(|_| found.next().is_none()).copied()
}

macro_rules! scripts {
    ($($name:literal)*) => {
        /// All of them, by name.
        pub const SCRIPTS: &[LibraryScript] = &[$(LibraryScript {
            name: $name,
            text: include_str!(concat!("../scripts/", $name, ".script")),
        }),*];
    };
}

scripts! {
    "end-a-finish-that-never-comes"
    "end-a-runtime-without-session-wait"
    "end-child-ten-minutes-after-root-idle"
    "end-grandchild-starts-after-its-parents-finish"
    "end-start-beside-the-last-finish"
    "end-the-settlement-wakes-the-root"
    "o03-a-childs-turn-inside-the-roots"
    "o07-a-finish-after-the-turn"
    "o08-a-turn-end-that-is-no-end"
    "t01-ids-are-bytes"
    "t02-an-invalid-start-leaves-no-edge"
    "t03-the-last-valid-start-counts"
    "t04-a-late-finish-goes-to-its-old-parent"
    "t05-starts-and-finishes-reach-the-child-itself"
    "t06-everything-else-goes-up"
    "t07-a-cycle-comes-to-an-end"
    "t08-a-new-process-knows-nobody"
    "t08-edges-outlive-turns"
    "t09-notifications-stay-before-the-reply-behind-them"
    "t10-what-matches-nobody-is-not-lost"
    "t11-who-stalls-harms-nobody"
    "t12-a-childs-text-is-never-the-answer"
    "t13-a-turn-begins-with-its-receipt"
    "t13-no-receipt"
    "t13-the-reply-comes-after-the-whole-turn"
    "t13-the-runtime-dies-in-a-turn"
    "t13-two-prompts-one-idle"
    "t14-the-path-is-known-to-who-comes-late"
    "t15-a-deep-tree"
    "w01-many-frames-in-one-read"
    "w01-one-byte-at-a-time"
    "w01-only-a-line-feed-ends-a-frame"
    "w02-a-frame-over-the-limit-fails-alone"
    "w02-a-line-without-an-end"
    "w03-a-banner-and-other-junk"
    "w03-the-stream-ends-inside-a-line"
    "w04-it-dies-before-the-first-reply"
    "w04-not-all-was-activated"
    "w04-stderr-is-read-before-the-first-reply"
    "w04-the-end-is-explained"
    "w05-answers-that-nobody-waits-for"
    "w06-an-unknown-request-is-answered"
    "w07-a-grandchild-holds-the-pipe"
    "w07-it-closes-stdout-and-lives"
    "w07-it-ends-only-by-sigkill"
    "w07-it-reads-no-more"
    "w07-it-says-yes-and-stays"
    "w08-a-prompt-that-is-not-answered"
    "w08-an-answer-that-never-comes"
    "w09-only-frames-go-there"
    "w10-what-the-runtime-gets-to-see"
    "w11-control-sequences"
}
