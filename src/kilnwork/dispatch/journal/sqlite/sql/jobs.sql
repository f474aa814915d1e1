-- Statements of the tables of jobs. `-- name:` gives the name that code uses; the line after says
-- what it is for. Columns are in the order of `kilnwork.jobs.rows`. The row of values of a statement
-- with VALUES is repeated for many rows.

-- name: next_job_row
-- Of the next job.
SELECT coalesce(max(row), 0) + 1 FROM job;

-- name: insert_job
-- New jobs.
INSERT INTO job (
    row, uuid, id, namespace, name, user, created, key_user, key, fingerprint, source, items, blobs,
    spec, phase, stage, prepared, verdict, reason, message, run, base_run, started, finished,
    expires, succeeded, failed, cancelled, progress, failures, losses, deleting, version, turn,
    admitted, successes
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
          ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_job_input
-- What new jobs read.
INSERT INTO job_input (job, definition, inline) VALUES (?, ?, ?);

-- name: update_job
-- All that may change of a job.
UPDATE job SET
    spec = v.column1, phase = v.column2, stage = v.column3, prepared = v.column4, verdict =
    v.column5, reason = v.column6, message = v.column7, run = v.column8, base_run = v.column9,
    started = v.column10, finished = v.column11, expires = v.column12, succeeded = v.column13,
    failed = v.column14, cancelled = v.column15, progress = v.column16, failures = v.column17,
    losses = v.column18, deleting = v.column19, version = v.column20,
    turn = v.column21, admitted = v.column22, successes = v.column23
FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)) AS v
WHERE job.row = v.column24;

-- name: forget_job_key
-- The job is gone for everybody: its idempotency key is free.
UPDATE job SET key = NULL WHERE row = ?;

-- name: forget_job_inline
-- The input is in the store.
UPDATE job_input SET inline = NULL WHERE job = ? AND inline IS NOT NULL;

-- name: put_job_items
-- The items of a job are known at last: row, how many.
UPDATE job SET items = v.column2 FROM (VALUES (?, ?)) AS v WHERE job.row = v.column1;

-- name: put_job_definition
-- With `put_job_items`: row, definition.
UPDATE job_input SET definition = v.column2 FROM (VALUES (?, ?)) AS v WHERE job = v.column1;

-- name: put_job_claim
-- What a job needs in order to start.
INSERT OR REPLACE INTO job_claim (job, claim) VALUES (?, ?);

-- name: put_job_schedule
-- What was decided about the ticks of a JobConfig.
INSERT OR REPLACE INTO job_schedule (config, namespace, name, tick, state) VALUES (?, ?, ?, ?, ?);

-- name: delete_job_schedule
-- The JobConfig is gone.
DELETE FROM job_schedule WHERE config = ?;

-- name: put_job_page
-- States of items that have changed.
INSERT OR REPLACE INTO job_page (job, page, packed) VALUES (?, ?, ?);

-- name: delete_job_pages
-- With `delete_job`.
DELETE FROM job_page WHERE job = ?;

-- name: delete_job_input
-- With `delete_job`.
DELETE FROM job_input WHERE job = ?;

-- name: delete_job_claim
-- With `delete_job`.
DELETE FROM job_claim WHERE job = ?;

-- name: delete_job
-- Nothing of it is left.
DELETE FROM job WHERE row = ?;

-- name: job_by_uuid
-- One job, also one that is being deleted.
SELECT * FROM job WHERE uuid = ?;

-- name: job_by_id
-- One job of a file by what people see.
SELECT * FROM job WHERE id = ? AND source = 'file';

-- name: jobs_between
-- Jobs of files by what people see: namespace, from which id, below which, number.
SELECT * FROM job
WHERE namespace = ?1 AND id >= ?2 AND id < ?3 AND deleting = 0 AND source = 'file' LIMIT ?4;

-- name: oldest_job
-- When the oldest job was created, null if there is none.
SELECT created FROM job ORDER BY row LIMIT 1;

-- name: job_by_name
-- The newest job of a file of that name.
SELECT * FROM job WHERE namespace = ? AND name = ? AND deleting = 0 AND source = 'file'
ORDER BY row DESC LIMIT 1;

-- name: index_jobs
-- Jobs of index sets, oldest first: above which row, number.
SELECT * FROM job INDEXED BY job_index WHERE source = 'index' AND row > ? ORDER BY row LIMIT ?;

-- name: job_claims
-- What unfinished jobs of index sets need or have, oldest first: above which row, number.
SELECT j.row, j.uuid, j.namespace, j.turn, j.stage, j.admitted, c.claim
FROM job j INDEXED BY job_index JOIN job_claim c ON c.job = j.row
WHERE j.source = 'index' AND j.finished IS NULL AND j.row > ? ORDER BY j.row LIMIT ?;

-- name: job_claim
-- What one job needs in order to start.
SELECT claim FROM job_claim WHERE job = ?;

-- name: job_schedule
-- The ticks of a JobConfig.
SELECT namespace, name, tick, state FROM job_schedule WHERE config = ?;

-- name: task_result
-- What the newest run of a task has returned, if that has succeeded.
SELECT media_type, result, result_size, result_digest FROM task
WHERE task = ? AND state = 'Success' ORDER BY run DESC LIMIT 1;

-- name: job_keys
-- The idempotency keys that have made a job, from their index alone.
SELECT namespace, key_user, key FROM job WHERE key IS NOT NULL;

-- name: job_by_key
-- The job that an idempotency key has made.
SELECT * FROM job WHERE namespace = ? AND key_user = ? AND key = ?;

-- name: jobs
-- Newest first: namespace, below, number.
SELECT * FROM job WHERE namespace = ? AND deleting = 0 AND source = 'file' AND row < ?
ORDER BY row DESC LIMIT ?;

-- name: jobs_in_phase
-- Newest first: namespace, phase, below, number.
SELECT * FROM job
WHERE namespace = ? AND phase = ? AND deleting = 0 AND source = 'file' AND row < ?
ORDER BY row DESC LIMIT ?;

-- name: jobs_of_name
-- Newest first: namespace, name, below, number.
SELECT * FROM job
WHERE namespace = ? AND name = ? AND deleting = 0 AND source = 'file' AND row < ?
ORDER BY row DESC LIMIT ?;

-- name: jobs_everywhere
-- Newest first: below, number.
SELECT * FROM job WHERE row IN (
    SELECT row FROM job INDEXED BY job_file WHERE deleting = 0 AND source = 'file' AND row < ?
    ORDER BY row DESC LIMIT ?
) ORDER BY row DESC;

-- name: jobs_in_phase_everywhere
-- Newest first: phase, below, number.
SELECT * FROM job WHERE row IN (
    SELECT row FROM job INDEXED BY job_phase
    WHERE phase = ? AND deleting = 0 AND source = 'file' AND row < ?
    ORDER BY row DESC LIMIT ?
) ORDER BY row DESC;

-- name: jobs_of_name_everywhere
-- Newest first: name, below, number.
SELECT * FROM job WHERE row IN (
    SELECT row FROM job INDEXED BY job_name
    WHERE name IS NOT NULL AND name = ? AND deleting = 0 AND source = 'file' AND row < ?
    ORDER BY row DESC LIMIT ?
) ORDER BY row DESC;

-- name: job_phases
-- How many jobs there are of each namespace and phase.
SELECT namespace, phase, count(*) FROM job WHERE deleting = 0 AND source = 'file' GROUP BY namespace, phase;

-- name: unfinished_jobs
-- What is to be gone on with, oldest first: above which row, number.
SELECT * FROM job WHERE ((finished IS NULL AND turn = 0) OR deleting = 1) AND row > ?
ORDER BY row LIMIT ?;

-- name: job_ends
-- When jobs have ended, by page: above which row, number.
SELECT row, uuid, finished FROM job WHERE row > ? ORDER BY row LIMIT ?;

-- name: expired_jobs
-- Jobs whose time to live is over by the wall clock: when, after which one, number.
SELECT row, uuid, finished, expires FROM job
WHERE expires IS NOT NULL AND source = 'file' AND expires <= ?1 AND (expires, row) > (?2, ?3)
    AND deleting = 0
ORDER BY expires, row LIMIT ?4;

-- name: job_blobs
-- What mappers of jobs need that may still be run: namespace, digests.
SELECT DISTINCT namespace, blobs FROM job INDEXED BY job_blobs
WHERE blobs IS NOT NULL AND deleting = 0 AND source = 'file' AND phase <> 'Succeeded';

-- name: job_definition
-- Of a job.
SELECT definition FROM job_input WHERE job = ?;

-- name: job_inline
-- Of a job, null when it is in the store.
SELECT inline FROM job_input WHERE job = ?;

-- name: job_pages
-- States of the items of a job: from which page on.
SELECT page, packed FROM job_page WHERE job = ? AND page >= ? ORDER BY page;
