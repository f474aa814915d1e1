-- Statements of the tables of flows, as those of jobs in `jobs.sql`; columns are in the order of
-- `kilnwork.jobs.flows.row_storage`.

-- name: next_flow_row
-- Of the next run.
SELECT coalesce(max(row), 0) + 1 FROM flow_run;

-- name: insert_flow_run
-- New runs.
INSERT INTO flow_run (row, uid, generation, definition, state, finished) VALUES (?, ?, ?, ?, ?, ?);

-- name: update_flow_run
-- All that may change of a run.
UPDATE flow_run SET state = v.column1, finished = v.column2
FROM (VALUES (?, ?, ?)) AS v WHERE flow_run.row = v.column3;

-- name: update_flow_definition
-- Snapshots that were divided again.
UPDATE flow_run SET definition = v.column1
FROM (VALUES (?, ?)) AS v WHERE flow_run.row = v.column2;

-- name: put_flow_step
-- The newest record of a step instance; its value stays.
INSERT INTO flow_step (run, key, record) VALUES (?, ?, ?)
ON CONFLICT (run, key) DO UPDATE SET record = excluded.record;

-- name: drop_flow_step
-- A step instance that may begin again: run, key.
DELETE FROM flow_step WHERE run = ? AND key = ?;

-- name: put_flow_value
-- The value of a step instance; its record stays.
INSERT INTO flow_step (run, key, value) VALUES (?, ?, ?)
ON CONFLICT (run, key) DO UPDATE SET value = excluded.value;

-- name: put_flow_memo
-- The result of a task of a deterministic step.
INSERT OR REPLACE INTO flow_memo (key, step, uid, generation, value) VALUES (?, ?, ?, ?, ?);

-- name: use_flow_memo
-- Who has used a result last: UUID, generation, key.
UPDATE flow_memo SET uid = v.column1, generation = v.column2
FROM (VALUES (?, ?, ?)) AS v WHERE flow_memo.key = v.column3;

-- name: delete_flow_memo
-- Results that only this generation, or earlier ones, have used: UUID, generation.
DELETE FROM flow_memo WHERE uid = ? AND generation <= ?;

-- name: delete_flow_steps
-- With `delete_flow_run`.
DELETE FROM flow_step WHERE run = ?;

-- name: delete_flow_run
-- Nothing of it is left.
DELETE FROM flow_run WHERE row = ?;

-- name: flow_run
-- One run: UUID, generation.
SELECT * FROM flow_run WHERE uid = ? AND generation = ?;

-- name: flow_runs
-- All runs, oldest first: above which row, number.
SELECT * FROM flow_run WHERE row > ? ORDER BY row LIMIT ?;

-- name: unfinished_flow_runs
-- What is to be gone on with, oldest first: above which row, number.
SELECT * FROM flow_run INDEXED BY flow_run_unfinished
WHERE finished IS NULL AND row > ? ORDER BY row LIMIT ?;

-- name: flow_steps
-- Records of a run, in the order in which they began.
SELECT record FROM flow_step WHERE run = ? AND record IS NOT NULL ORDER BY row;

-- name: flow_value
-- The value of one step instance: run, key.
SELECT value FROM flow_step WHERE run = ? AND key = ?;

-- name: flow_memo_keys
-- The results that are kept of a step.
SELECT key FROM flow_memo WHERE step = ?;

-- name: flow_memo
-- The result that is kept for a task.
SELECT value FROM flow_memo WHERE key = ?;
