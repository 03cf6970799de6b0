//! The exit codes of the program: the only place where they are numbers, and what the reference is printed from.

/// It worked.
pub(crate) const DONE: u8 = 0;
/// It did not work.
pub(crate) const FAILED: u8 = 1;
/// It was asked for in a wrong way.
pub(crate) const USAGE: u8 = 2;
/// 128 and SIGHUP.
pub(crate) const HUNG_UP: u8 = 129;
/// 128 and SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;
/// 128 and SIGTERM.
pub(crate) const TERMINATED: u8 = 143;

/// Each code and what it means.
pub(crate) const TABLE: &[(u8, &str)] = &[
    (DONE, "it worked; for `run`, `rerun` and `task`: the session completed, whatever its children did"),
    (
        FAILED,
        "it did not work, although it was asked for in a right way: the root or the child failed, was cancelled by \
         somebody else or refused; the store cannot be used or is empty; a document cannot be imported; `search` found \
         nothing; `doctor` found something that has to be mended",
    ),
    (
        USAGE,
        "wrong use: what the command line names is not there (a flag, a file, a node, a session), can mean more than \
         one, or is in the way (nothing is overwritten), or the manifest has a mistake; nothing was made",
    ),
    (HUNG_UP, "ended by SIGHUP: the terminal was closed; what ran was cancelled"),
    (INTERRUPTED, "ended by Ctrl-C (SIGINT); what ran was cancelled"),
    (TERMINATED, "ended by SIGTERM; what ran was cancelled"),
];
