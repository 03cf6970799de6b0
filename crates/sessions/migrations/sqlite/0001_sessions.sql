-- Sessions, their runs and the log of each tree, by small integer keys.

CREATE TABLE sessions (
    -- Grows with each new row: the order of creation. A tree's key is the key of its root.
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    -- The key of the parent in the same tree; NULL for a root.
    parent INTEGER,
    -- The parent a root names all the same; it is in no tree of ours (rule L3).
    parent_id TEXT,
    -- The key of the root; NULL for a root.
    tree INTEGER,
    depth INTEGER NOT NULL,
    project_id TEXT,
    cwd TEXT,
    agent_name TEXT NOT NULL,
    agent_type TEXT NOT NULL,
    source_type TEXT,
    pool_id TEXT,
    task TEXT,
    title TEXT,
    model TEXT,
    settings TEXT,
    max_depth INTEGER,
    max_descendants INTEGER,
    max_live_children INTEGER,
    max_wall_ms INTEGER,
    peer TEXT,
    external_id TEXT,
    created_at INTEGER NOT NULL,
    last_active_at INTEGER NOT NULL,
    -- A JSON object of strings; NULL for an empty one.
    metadata TEXT,
    version TEXT NOT NULL
);

CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;

CREATE TABLE trees (
    -- The key of the root's row.
    key INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    -- How many runs of the tree have not ended; kept with every run written.
    open_runs INTEGER NOT NULL
);

CREATE INDEX trees_open ON trees (key) WHERE open_runs > 0;

CREATE TABLE runs (
    session INTEGER NOT NULL,
    -- 1, 2, 3 … within the session, in the order they came.
    n INTEGER NOT NULL,
    id TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    state INTEGER NOT NULL,
    error TEXT,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    cost_micro_usd INTEGER,
    messages INTEGER NOT NULL,
    process TEXT,
    opened_at INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (session, n)
) WITHOUT ROWID;

CREATE TABLE events (
    -- tree * 2^32 + seq: the log of a tree is one range, in order, without an index beside it.
    key INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    -- The run's n, or its id as text when no such run is stored.
    run,
    at INTEGER NOT NULL,
    late INTEGER NOT NULL,
    -- A number for the kinds this program knows, the word itself for others.
    kind NOT NULL,
    -- JSON, byte for byte as it came.
    data TEXT NOT NULL
);

CREATE TABLE commands (
    id TEXT PRIMARY KEY,
    tree INTEGER NOT NULL,
    session TEXT NOT NULL,
    kind TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    answer TEXT
) WITHOUT ROWID;

CREATE INDEX commands_tree ON commands (tree);
