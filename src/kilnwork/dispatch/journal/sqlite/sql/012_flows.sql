-- Migration 12: flows, whose steps are jobs of source 'flow'; see `kilnwork.jobs.flows`.

-- A generation of a SyncSet. `definition`: what is run, on which data; `state`: the run as a whole.
CREATE TABLE flow_run (
    row        INTEGER PRIMARY KEY,
    uid        BLOB NOT NULL,      -- UUID of the SyncSet
    generation INTEGER NOT NULL,
    definition BLOB NOT NULL,      -- JSON
    state      BLOB NOT NULL,      -- JSON
    finished   REAL                -- wall clock, seconds; null: not yet
);
CREATE UNIQUE INDEX flow_run_key ON flow_run (uid, generation);
CREATE INDEX flow_run_unfinished ON flow_run (row) WHERE finished IS NULL;

-- Step instances that have begun, in that order; key '' has the value of the run.
CREATE TABLE flow_step (
    row    INTEGER PRIMARY KEY,
    run    INTEGER NOT NULL,
    key    TEXT NOT NULL,
    record BLOB,                   -- JSON
    value  BLOB                    -- JSON; null: nobody reads it, or it is not there yet
);
CREATE UNIQUE INDEX flow_step_key ON flow_step (run, key);

-- Results of deterministic steps, by the digest of all that they depend on.
CREATE TABLE flow_memo (
    key        BLOB PRIMARY KEY,
    step       TEXT NOT NULL,      -- digest of the step and of all data
    uid        BLOB NOT NULL,      -- of the SyncSet that used it last
    generation INTEGER NOT NULL,   -- that used it last
    value      BLOB NOT NULL       -- JSON
) WITHOUT ROWID;
CREATE INDEX flow_memo_step ON flow_memo (step);
CREATE INDEX flow_memo_owner ON flow_memo (uid, generation);
