-- What each root was started with, and how much of a run's output was not kept.

CREATE TABLE origins (
    -- The key of the root's row.
    tree INTEGER PRIMARY KEY,
    manifest TEXT NOT NULL,
    manifest_path TEXT,
    node TEXT NOT NULL,
    cwd TEXT,
    program_version TEXT NOT NULL,
    -- The id of the root it repeats, which may be deleted.
    rerun_of TEXT,
    -- The last column: a long one is written into its place, and only the end of a row can be made without its bytes.
    prompt TEXT NOT NULL
);

ALTER TABLE runs ADD COLUMN left_out_bytes INTEGER NOT NULL DEFAULT 0;
