-- What each root was started with, and how much of a run's output was not kept.

CREATE TABLE origins (
    -- The key of the root's row.
    tree bigint PRIMARY KEY,
    manifest text NOT NULL,
    manifest_path text,
    node text NOT NULL,
    cwd text,
    program_version text NOT NULL,
    -- The id of the root it repeats, which may be deleted.
    rerun_of text COLLATE "C",
    prompt text NOT NULL
);

ALTER TABLE runs ADD COLUMN left_out_bytes bigint NOT NULL DEFAULT 0;
