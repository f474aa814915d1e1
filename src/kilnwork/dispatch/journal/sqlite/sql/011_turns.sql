-- Migration 11: jobs that wait for their turn, and the ticks of schedules.

-- 0: it has started, or has no need to wait; 1: it waits for its turn; 2: it was never accepted.
ALTER TABLE job ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
-- When its turn came, in this run.
ALTER TABLE job ADD COLUMN admitted REAL;

-- What a job needs in order to start; only jobs of index sets have a row.
CREATE TABLE job_claim (
    job   INTEGER PRIMARY KEY,
    claim BLOB NOT NULL            -- JSON
);

-- The ticks of a JobConfig's schedule. `state`: the latest tick that was decided, those that are to
-- run, the jobs that were made of them, and how many were dropped for which reason; JSON.
CREATE TABLE job_schedule (
    config    BLOB PRIMARY KEY,    -- its UUID
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    tick      INTEGER NOT NULL,    -- seconds since the epoch
    state     BLOB NOT NULL
) WITHOUT ROWID;

-- Lists of jobs are of files; what is unfinished and waits for its turn needs no look.
DROP INDEX job_namespace;
DROP INDEX job_phase;
DROP INDEX job_name;
DROP INDEX job_unfinished;
DROP INDEX job_blobs;
DROP INDEX job_expires;
CREATE INDEX job_namespace ON job (namespace, row) WHERE deleting = 0 AND source = 'file';
CREATE INDEX job_phase ON job (namespace, phase, row) WHERE deleting = 0 AND source = 'file';
CREATE INDEX job_name ON job (namespace, name, row) WHERE name IS NOT NULL AND source = 'file';
CREATE INDEX job_unfinished ON job (row) WHERE (finished IS NULL AND turn = 0) OR deleting = 1;
CREATE INDEX job_blobs ON job (row) WHERE blobs IS NOT NULL AND deleting = 0 AND source = 'file';
CREATE INDEX job_expires ON job (expires) WHERE expires IS NOT NULL AND source = 'file';
CREATE INDEX job_file ON job (row) WHERE deleting = 0 AND source = 'file';
CREATE INDEX job_index ON job (row) WHERE source = 'index';
