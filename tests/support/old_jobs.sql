-- Migration 1: the catalog of file jobs.
-- Times are wall clock, seconds since the epoch, null for "not yet". UUIDs are 16 bytes.

-- One row: the epoch of the journal with which the catalog was last used. A journal of an epoch that
-- is not higher has been replaced: it knows nothing of our tasks.
CREATE TABLE companion (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    journal  INTEGER NOT NULL
);
INSERT INTO companion (only_row, journal) VALUES (1, 0);

-- Jobs; rows rise with time. Counts are those of `part`, kept up to date in the same transaction.
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
    lines       INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    sha256      TEXT NOT NULL,
    parts       INTEGER NOT NULL,
    source      TEXT,              -- key of its input in the whole store; null: its own input
    blobs       BLOB,              -- digests of what its mappers need, 32 bytes each; null: nothing
    spec        BLOB NOT NULL,     -- JSON
    phase       TEXT NOT NULL,     -- follows from the others; for lists
    stage       INTEGER NOT NULL,
    stored      INTEGER NOT NULL,  -- 1: its folder has its input and a job.json of this run
    verdict     TEXT,
    reason      TEXT NOT NULL,
    message     TEXT NOT NULL,
    run         INTEGER NOT NULL,
    base_run    INTEGER NOT NULL,  -- of parts that have no row
    started     REAL,
    finished    REAL,
    expires     REAL,
    succeeded   INTEGER NOT NULL,  -- parts
    failed      INTEGER NOT NULL,
    cancelled   INTEGER NOT NULL,
    good        INTEGER NOT NULL,  -- records of parts that succeeded
    bad         INTEGER NOT NULL,
    skipped     INTEGER NOT NULL,
    done_bytes  INTEGER NOT NULL,
    output      BLOB,              -- JSON
    errors      BLOB,              -- JSON
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

-- What a job reads. `inline`: a small input, until it is in the store.
CREATE TABLE input (
    job      INTEGER PRIMARY KEY,
    manifest BLOB NOT NULL,        -- JSON
    inline   BLOB
);

-- Parts that are over, or in a run of their own. The commit record in the store is the truth.
CREATE TABLE part (
    job   INTEGER NOT NULL,
    part  INTEGER NOT NULL,
    run   INTEGER NOT NULL,
    state INTEGER NOT NULL,        -- 0: open, 2: succeeded, 3: failed, 4: cancelled
    record BLOB,                   -- JSON: the commit record, null while it is open
    PRIMARY KEY (job, part)
) WITHOUT ROWID;
