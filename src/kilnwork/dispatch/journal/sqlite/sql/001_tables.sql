-- Migration 1: the journal's tables.
-- Times are wall clock, seconds since the epoch, null for "not yet". Ids are 16 bytes.

-- One row: which dispatcher may write. Each one that opens the journal raises the epoch.
CREATE TABLE leadership (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    epoch    INTEGER NOT NULL
);
INSERT INTO leadership (only_row, epoch) VALUES (1, 0);

-- Sessions of workers: one row for each process life of an agent.
CREATE TABLE worker (
    worker    INTEGER PRIMARY KEY,
    session   BLOB NOT NULL,
    namespace TEXT NOT NULL,
    cluster   TEXT NOT NULL,
    name      TEXT NOT NULL,
    pod_uid   TEXT NOT NULL,
    node      TEXT NOT NULL
);

-- Runs of tasks: old runs stay, the newest has the highest number. Columns about an attempt are of
-- the newest one; attempts that ended otherwise than well are in past_attempt.
CREATE TABLE task (
    row             INTEGER PRIMARY KEY,
    task            BLOB NOT NULL,
    run             INTEGER NOT NULL,
    namespace       TEXT NOT NULL,
    name            TEXT,              -- null: its name is its id
    cluster         TEXT NOT NULL,
    declared        INTEGER NOT NULL,  -- 1: it is a Task object
    spec            BLOB NOT NULL,     -- JSON
    inputs          BLOB,              -- JSON object by input name
    digest          BLOB,              -- of spec and inputs; children only
    parent          BLOB,
    parent_run      INTEGER,
    parent_attempt  INTEGER,           -- the newest attempt that asked for it
    child_key       TEXT,              -- =KEY or #N
    created         REAL NOT NULL,
    state           TEXT NOT NULL,
    reason          TEXT NOT NULL,
    message         TEXT NOT NULL,
    attempt         INTEGER NOT NULL,  -- 0: none yet
    attempt_state   TEXT,
    failures        INTEGER NOT NULL,
    losses          INTEGER NOT NULL,
    excused         INTEGER NOT NULL,  -- attempts that count as neither
    worker          INTEGER,
    reserved        REAL,
    attempt_started REAL,
    started         REAL,              -- first start of this run
    finished        REAL,
    exit_code       INTEGER,
    media_type      TEXT,
    result          BLOB,
    stopped         INTEGER,           -- 1: proof that nothing runs; 0: such proof is missing
    due             REAL NOT NULL      -- no attempt before this moment
);

CREATE UNIQUE INDEX task_run ON task (task, run);
CREATE INDEX task_unfinished ON task (row) WHERE finished IS NULL;
CREATE INDEX task_child ON task (parent, parent_run, child_key) WHERE parent IS NOT NULL;
CREATE INDEX task_name ON task (namespace, name) WHERE name IS NOT NULL;

-- Attempts that are over and did not succeed.
CREATE TABLE past_attempt (
    task_row  INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    worker    INTEGER,
    reserved  REAL NOT NULL,
    started   REAL,
    finished  REAL NOT NULL,
    ending    TEXT NOT NULL,
    reason    TEXT NOT NULL,
    message   TEXT NOT NULL,
    exit_code INTEGER,
    PRIMARY KEY (task_row, attempt)
) WITHOUT ROWID;
