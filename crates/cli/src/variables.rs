//! The variables of the environment that the program reads: the only place where they are named, and what the
//! reference is printed from.

pub(crate) use offspring_agents::command::variables::{DB, SESSION, SOCKET, TOKEN};

/// A file with the address of a database.
pub(crate) const DB_FILE: &str = "OFFSPRING_DB_FILE";
/// What the crates have to say, on stderr.
pub(crate) const LOG: &str = "OFFSPRING_LOG";
/// Where the user's state is kept.
pub(crate) const STATE_HOME: &str = "XDG_STATE_HOME";
/// The user's directory.
pub(crate) const HOME: &str = "HOME";
/// Where programs are found.
pub(crate) const PATH: &str = "PATH";
/// What kind of terminal it is.
pub(crate) const TERM: &str = "TERM";

/// What says which language and characters a terminal has; the first that is set.
pub(crate) const LOCALE: [&str; 3] = ["LC_ALL", "LC_CTYPE", "LANG"];
/// No colours, whatever the terminal is.
pub(crate) const NO_COLOR: &str = "NO_COLOR";
/// Colours, whatever it is.
pub(crate) const CLICOLOR_FORCE: &str = "CLICOLOR_FORCE";

/// What a dsh runtime gets of our environment without being asked.
pub(crate) const RUNTIME: [&str; 5] =
    ["DSH_HOME", "DSH_TELEMETRY_MODE", "DSH_PERMISSION_MODE", "DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL"];

/// Each variable and what it does.
pub(crate) const TABLE: &[(&str, &str)] = &[
    (DB, "the store, when `--db` does not name one: a SQLite file, `postgres://…`, or `memory:` for none"),
    (DB_FILE, "the same, where that is not set: a file whose first line is `postgres://…`"),
    ("PGPASSWORD", "the password for a database, where its address has none"),
    (
        "PGPASSFILE",
        "a file with such passwords, as libpq reads it, that its user alone can read; default: `~/.pgpass`",
    ),
    (LOG, "what the program says about its work, on stderr: `error`, `warn`, `info`, `debug` or `trace`"),
    (
        SESSION,
        "the session this is called in: `run` refuses to start another tree inside one without `--new-root`",
    ),
    (SOCKET, "the private endpoint of the pool, for `offspring task`"),
    (TOKEN, "the right to delegate in the name of this run, for `offspring task`"),
    (STATE_HOME, "sessions are kept in `offspring/sessions.db` below it; default: `~/.local/state`"),
    (HOME, "the user's directory, where `XDG_STATE_HOME` is not set"),
    ("XDG_RUNTIME_DIR", "where a pool that runs has its private directory (socket, scratch files)"),
    ("TMPDIR", "the same, where `XDG_RUNTIME_DIR` is not set; default: `/tmp`"),
    (PATH, "where `git` and the programs of agents without a `/` are found, unless an agent has its own"),
    (TERM, "with `dumb`, or not set, nothing is redrawn in place or coloured"),
    (NO_COLOR, "set to anything: no colours, unless `--color always` asks for them"),
    (
        CLICOLOR_FORCE,
        "set to anything but `0`: colours also in a pipe, unless `NO_COLOR` or `--color` says otherwise",
    ),
    (
        LOCALE[0],
        "the locale: with one that is not of UTF-8 trees are drawn in ASCII, and what a terminal cannot show is `?`",
    ),
    (LOCALE[1], "the same, where `LC_ALL` is not set"),
    (LOCALE[2], "the same, where neither is set; without any of the three it is UTF-8"),
    (
        "GIT_*",
        "not passed on to the `git` that is asked for the project, but for `GIT_CONFIG*` and `GIT_CEILING*`",
    ),
    (
        RUNTIME[0],
        "passed on to a dsh runtime by `drive`, unless `--home` sets it: where it keeps its sessions",
    ),
    (RUNTIME[1], "the same: whether it tells its makers anything"),
    (RUNTIME[2], "the same: what its tools may do without asking"),
    (RUNTIME[3], "the same: the key of its model's provider; never in a trace"),
    (RUNTIME[4], "the same: where its model's provider is"),
    ("TZ", "the time zone in which times are shown"),
];
