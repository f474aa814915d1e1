-- Migration 5: jobs, which are sets of tasks; see `kilnwork.jobs`.
-- Times are wall clock, seconds since the epoch, null for "not yet". UUIDs are 16 bytes.

-- Jobs; rows rise with time. Counts are those of items, kept up to date in the same transaction.
CREATE TABLE job (
    row         INTEGER PRIMARY KEY,
    uuid        BLOB NOT NULL,
    id          TEXT NOT NULL,     -- what people see: YYYY-MM-<decimal>
    namespace   TEXT NOT NULL,
    name        TEXT,              -- null: it has none
    user        TEXT NOT NULL,
    created     REAL NOT NULL,
    key_user    TEXT,              -- who gave `key`
    key         TEXT,              -- the idempotency key that made it, null for none
    fingerprint BLOB,              -- of the request that came with it
    source      TEXT NOT NULL,     -- what kind of items it has
    items       INTEGER NOT NULL,  -- how many
    blobs       BLOB,              -- digests of what its tasks need, 32 bytes each; null: nothing
    spec        BLOB NOT NULL,     -- JSON
    phase       TEXT NOT NULL,     -- follows from the others; for lists
    stage       INTEGER NOT NULL,
    prepared    INTEGER NOT NULL,  -- 1: its source has all that tasks of this run need
    verdict     TEXT,
    reason      TEXT NOT NULL,
    message     TEXT NOT NULL,
    run         INTEGER NOT NULL,
    base_run    INTEGER NOT NULL,  -- of items that have none of their own
    started     REAL,
    finished    REAL,
    expires     REAL,
    succeeded   INTEGER NOT NULL,  -- items
    failed      INTEGER NOT NULL,
    cancelled   INTEGER NOT NULL,
    progress    BLOB NOT NULL,     -- JSON: what its source has to say
    failures    INTEGER NOT NULL,  -- of attempts
    losses      INTEGER NOT NULL,
    deleting    INTEGER NOT NULL,  -- 1: gone for everybody; what it stored is being deleted
    version     INTEGER NOT NULL
);
CREATE UNIQUE INDEX job_uuid ON job (uuid);
CREATE UNIQUE INDEX job_id ON job (id);
CREATE INDEX job_namespace ON job (namespace, row) WHERE deleting = 0;
CREATE INDEX job_phase ON job (namespace, phase, row) WHERE deleting = 0;
CREATE INDEX job_name ON job (namespace, name, row) WHERE name IS NOT NULL;
CREATE UNIQUE INDEX job_key ON job (namespace, key_user, key) WHERE key IS NOT NULL;
CREATE INDEX job_unfinished ON job (row) WHERE finished IS NULL OR deleting = 1;
CREATE INDEX job_blobs ON job (row) WHERE blobs IS NOT NULL AND deleting = 0;
CREATE INDEX job_expires ON job (expires) WHERE expires IS NOT NULL;

-- What the items of a job are. `inline`: a small input, until the job is prepared.
CREATE TABLE job_input (
    job        INTEGER PRIMARY KEY,
    definition BLOB NOT NULL,      -- JSON
    inline     BLOB
);

-- States of items, 128 to a page, by number >> 7; a page without a row: all are open, in the run
-- `base_run`. A byte of state each, then a run each, 32 bits, little-endian, 0: `base_run`.
-- 0: open, 1: has a task, 2: succeeded, 3: failed, 4: cancelled.
CREATE TABLE job_page (
    job    INTEGER NOT NULL,
    page   INTEGER NOT NULL,
    packed BLOB NOT NULL,
    PRIMARY KEY (job, page)
) WITHOUT ROWID;
