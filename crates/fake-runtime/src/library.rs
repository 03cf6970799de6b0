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

scripts! {}
