-- Sessions, their runs and the log of each tree, by small integer keys. Ids are compared by their bytes.

CREATE SEQUENCE session_keys;

CREATE TABLE sessions (
    -- Grows with each new row of a tree: the order of creation. A tree's key is the key of its root.
    key bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    -- The key of the parent in the same tree; NULL for a root.
    parent bigint,
    -- The parent a root names all the same; it is in no tree of ours (rule L3).
    parent_id text COLLATE "C",
    -- The key of the root; NULL for a root.
    tree bigint,
    depth bigint NOT NULL,
    project_id text COLLATE "C",
    cwd text,
    agent_name text NOT NULL,
    agent_type text NOT NULL,
    source_type text,
    pool_id text COLLATE "C",
    task text COLLATE "C",
    title text,
    model text,
    -- JSON, byte for byte as it came.
    settings text,
    max_depth bigint,
    max_descendants bigint,
    max_live_children bigint,
    max_wall_ms bigint,
    peer text COLLATE "C",
    external_id text COLLATE "C",
    -- Milliseconds since 1970, as all times here.
    created_at bigint NOT NULL,
    last_active_at bigint NOT NULL,
    -- A JSON object of strings; NULL for an empty one.
    metadata text,
    version text NOT NULL
);

CREATE UNIQUE INDEX sessions_id ON sessions (id);
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;

CREATE TABLE owners (
    -- A process that may own trees.
    id text COLLATE "C" PRIMARY KEY,
    lease_ms bigint NOT NULL,
    -- By the clock of this database, and by no other.
    expires_at timestamptz NOT NULL
);

CREATE TABLE trees (
    -- The key of the root's row.
    key bigint PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    last_seq bigint NOT NULL,
    -- How many runs of the tree have not ended; kept with every run written.
    open_runs bigint NOT NULL,
    -- What its rows and its log take, about; kept with every write.
    bytes bigint NOT NULL
    -- Changed by every commit: room for the next version of a row on the same page.
) WITH (fillfactor = 50);

CREATE INDEX trees_open ON trees (key) WHERE open_runs > 0;

CREATE TABLE runs (
    session bigint NOT NULL,
    -- 1, 2, 3 … within the session, in the order they came.
    n bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    ordinal bigint NOT NULL,
    -- pending, running, or how it ended.
    state text NOT NULL,
    error text,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    cost_micro_usd bigint,
    messages bigint NOT NULL,
    process text,
    opened_at bigint NOT NULL,
    ended_at bigint,
    PRIMARY KEY (session, n)
);

CREATE UNIQUE INDEX runs_id ON runs (session, id);

CREATE TABLE events (
    tree bigint NOT NULL,
    seq bigint NOT NULL,
    session bigint NOT NULL,
    -- The run's n; its id when no such run is stored.
    run bigint,
    run_id text COLLATE "C",
    at bigint NOT NULL,
    late boolean NOT NULL,
    kind text NOT NULL,
    -- JSON, byte for byte as it came.
    data text NOT NULL,
    PRIMARY KEY (tree, seq)
);

CREATE TABLE commands (
    id text COLLATE "C" PRIMARY KEY,
    tree bigint NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
    session text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    asked_at bigint NOT NULL,
    answer text
);

CREATE INDEX commands_tree ON commands (tree);
