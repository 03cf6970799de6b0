//! The explicit environment of a child process (W10).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;

/// What [`Environment::small_set`] copies, next to every `LC_*`.
pub const SMALL_SET: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM"];

/// The environment of a child: exactly what is listed here, nothing inherited by accident (W10).
///
/// It starts empty. `Debug` prints names only, because values are where keys and passwords are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// No variable at all. The marker of the run is added when a program is started.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Copies the small set from our own environment, as far as it is there: `PATH`, `HOME`, `USER`, `LOGNAME`,
    /// `SHELL`, `LANG`, every `LC_*`, `TZ`, `TMPDIR`, `TERM`. A program finds others, its user, its language and a
    /// place for temporary files, and no key.
    #[must_use]
    pub fn small_set(mut self) -> Self {
        for (name, value) in std::env::vars_os() {
            let wanted =
                name.to_str().is_some_and(|name| SMALL_SET.contains(&name) || name.starts_with("LC_"));
            if wanted {
                self.variables.insert(name, value);
            }
        }
        self
    }

    /// Sets a variable; a later value replaces an earlier one. A name that is empty or holds `=` or NUL, and a
    /// value that holds NUL, cannot be given to a process: [`spawn`](crate::spawn) refuses them.
    #[must_use]
    pub fn set(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Copies one variable from our own environment; one that is not set there stays unset.
    #[must_use]
    pub fn pass(mut self, name: impl Into<OsString>) -> Self {
        let name = name.into();
        if let Some(value) = std::env::var_os(&name) {
            self.variables.insert(name, value);
        }
        self
    }

    /// Removes a variable.
    #[must_use]
    pub fn without(mut self, name: impl AsRef<OsStr>) -> Self {
        self.variables.remove(name.as_ref());
        self
    }

    /// The value of a variable.
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.variables.get(name.as_ref()).map(OsString::as_os_str)
    }

    /// The names, sorted, without values: what may be shown.
    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.variables.keys().map(OsString::as_os_str)
    }

    /// Names and values, sorted by name, for the start of a process.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// The first name that no process can be given, or whose value cannot be.
    pub(crate) fn first_unusable(&self) -> Option<&OsStr> {
        let has = |text: &OsStr, byte: u8| text.as_encoded_bytes().contains(&byte);
        self.variables
            .iter()
            .find(|(name, value)| name.is_empty() || has(name, b'=') || has(name, 0) || has(value, 0))
            .map(|(name, _)| name.as_os_str())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")?;
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w10_debug_of_an_environment_names_variables_and_never_prints_a_value() {
        let environment = Environment::empty().set("API_KEY", "hunter2-secret");
        let text = format!("{environment:?} {environment:#?}");
        assert!(text.contains("API_KEY"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn w10_an_environment_starts_empty_and_the_small_set_takes_nothing_else() {
        assert_eq!(Environment::empty().names().count(), 0);
        let small = Environment::empty().small_set();
        assert!(small.get("PATH").is_some());
        for name in small.names() {
            let name = name.to_string_lossy();
            assert!(SMALL_SET.contains(&&*name) || name.starts_with("LC_"), "{name}");
        }
        // Cargo sets this one for every test, so it is there to be left out.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        assert!(small.get("CARGO_MANIFEST_DIR").is_none());
        assert!(small.pass("CARGO_MANIFEST_DIR").get("CARGO_MANIFEST_DIR").is_some());
    }

    #[test]
    fn w10_what_is_taken_out_is_not_given_and_the_rest_is() {
        let environment = Environment::empty().set("A", "1").set("B", "2").without("A").without("C");
        assert_eq!(environment.iter().collect::<Vec<_>>(), [("B".as_ref(), "2".as_ref())]);
    }

    #[test]
    fn w10_names_and_values_no_process_can_be_given_are_found() {
        assert_eq!(Environment::empty().set("A=B", "c").first_unusable(), Some("A=B".as_ref()));
        assert_eq!(Environment::empty().set("A", "c\0d").first_unusable(), Some("A".as_ref()));
        assert_eq!(Environment::empty().set("", "c").first_unusable(), Some("".as_ref()));
        assert_eq!(Environment::empty().set("A", "=").first_unusable(), None);
    }
}
