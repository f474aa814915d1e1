-- Every statement of the journal apart from its tables. `-- name:` gives the name that code uses;
-- the line after says what it is for. Columns named in `rows.py` are in that order.

-- name: read_epoch
-- Who may write; checked inside each transaction.
SELECT epoch FROM leadership;

-- name: raise_epoch
-- A new dispatcher takes over.
UPDATE leadership SET epoch = epoch + 1;

-- name: insert_worker
-- A new session of a worker.
INSERT INTO worker (worker, session, namespace, cluster, name, pod_uid, node)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: insert_task
-- A new run of a task, as it is when the batch is written.
INSERT INTO task (
    state, reason, message, attempt, attempt_state, failures, losses, excused, worker, reserved,
    attempt_started, started, finished, exit_code, media_type, result, stopped, due, suspended,
    pending_since, parent_attempt, row, task, run, namespace, name, cluster, declared, spec, inputs, digest, parent, parent_run,
    child_key, created
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
          ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: update_task
-- All that may change of a run. A run that has ended keeps its state: finality is checked here too.
UPDATE task SET
    state = ?1, reason = ?2, message = ?3, attempt = ?4, attempt_state = ?5, failures = ?6,
    losses = ?7, excused = ?8, worker = ?9, reserved = ?10, attempt_started = ?11, started = ?12,
    finished = ?13, exit_code = ?14, media_type = ?15, result = ?16, stopped = ?17, due = ?18,
    suspended = ?19, pending_since = ?20, parent_attempt = ?21
WHERE row = ?22 AND (finished IS NULL OR state = ?1);

-- name: insert_past_attempt
-- An attempt is over and did not succeed.
INSERT OR REPLACE INTO past_attempt (
    task_row, attempt, worker, reserved, started, finished, ending, reason, message, exit_code
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: release_task
-- The object of a task is gone: nobody follows any of its runs.
UPDATE task SET released = 1 WHERE task = ?;

-- name: forget_attempts
-- Before `forget_task`: the history of a task that is forgotten.
DELETE FROM past_attempt WHERE task_row IN (SELECT row FROM task WHERE task = ?);

-- name: forget_task
-- All runs of a task that is forgotten.
DELETE FROM task WHERE task = ?;

-- name: aged
-- One batch of rows in order of age, and whether their tasks may be forgotten: each run of the task
-- ended before ?1, it has no object, no unfinished child, and no parent in the journal (whose next
-- attempt would look for it, or whose counts show it). ?2: rows above this one, ?3: how many.
SELECT t.row, t.task,
    t.finished < ?1 AND (t.declared = 0 OR t.released = 1)
    AND NOT EXISTS (SELECT 1 FROM task r WHERE r.task = t.task
        AND (r.finished IS NULL OR r.finished >= ?1))
    AND NOT EXISTS (SELECT 1 FROM task c WHERE c.parent = t.task AND c.finished IS NULL)
    AND (t.parent IS NULL OR NOT EXISTS (SELECT 1 FROM task p WHERE p.task = t.parent))
FROM task t WHERE t.row > ?2 AND t.created < ?1 ORDER BY t.row LIMIT ?3;

-- name: next_rows
-- The first free row numbers of task and worker.
SELECT
    (SELECT coalesce(max(row), 0) + 1 FROM task),
    (SELECT coalesce(max(worker), 0) + 1 FROM worker);

-- name: unfinished
-- All that memory must have again after a start, in order of submission.
SELECT
    t.row, t.task, t.run, t.namespace, t.name, t.cluster, t.declared, t.spec, t.inputs, t.digest,
    t.parent, t.parent_run, t.parent_attempt, t.child_key, t.created, t.state, t.reason, t.message,
    t.attempt, t.attempt_state, t.failures, t.losses, t.excused, t.worker, t.reserved,
    t.attempt_started, t.started, t.finished, t.exit_code, t.media_type, t.result, t.stopped, t.due,
    t.suspended, t.pending_since, w.session, w.name, w.pod_uid, w.node
FROM task t LEFT JOIN worker w ON w.worker = t.worker
WHERE t.finished IS NULL ORDER BY t.row;

-- name: newest_run
-- The newest run of a task.
SELECT
    t.row, t.task, t.run, t.namespace, t.name, t.cluster, t.declared, t.spec, t.inputs, t.digest,
    t.parent, t.parent_run, t.parent_attempt, t.child_key, t.created, t.state, t.reason, t.message,
    t.attempt, t.attempt_state, t.failures, t.losses, t.excused, t.worker, t.reserved,
    t.attempt_started, t.started, t.finished, t.exit_code, t.media_type, t.result, t.stopped, t.due,
    t.suspended, t.pending_since, w.session, w.name, w.pod_uid, w.node
FROM task t LEFT JOIN worker w ON w.worker = t.worker
WHERE t.task = ? ORDER BY t.run DESC LIMIT 1;

-- name: one_run
-- One run of a task.
SELECT
    t.row, t.task, t.run, t.namespace, t.name, t.cluster, t.declared, t.spec, t.inputs, t.digest,
    t.parent, t.parent_run, t.parent_attempt, t.child_key, t.created, t.state, t.reason, t.message,
    t.attempt, t.attempt_state, t.failures, t.losses, t.excused, t.worker, t.reserved,
    t.attempt_started, t.started, t.finished, t.exit_code, t.media_type, t.result, t.stopped, t.due,
    t.suspended, t.pending_since, w.session, w.name, w.pod_uid, w.node
FROM task t LEFT JOIN worker w ON w.worker = t.worker
WHERE t.task = ? AND t.run = ?;

-- name: declared
-- The newest run of every declared task whose object was not gone yet.
SELECT
    t.row, t.task, t.run, t.namespace, t.name, t.cluster, t.declared, t.spec, t.inputs, t.digest,
    t.parent, t.parent_run, t.parent_attempt, t.child_key, t.created, t.state, t.reason, t.message,
    t.attempt, t.attempt_state, t.failures, t.losses, t.excused, t.worker, t.reserved,
    t.attempt_started, t.started, t.finished, t.exit_code, t.media_type, t.result, t.stopped, t.due,
    t.suspended, t.pending_since, w.session, w.name, w.pod_uid, w.node
FROM task t LEFT JOIN worker w ON w.worker = t.worker
WHERE t.declared = 1 AND t.released = 0 AND t.run = (SELECT max(run) FROM task WHERE task = t.task) ORDER BY t.row;

-- name: newest_in_namespace
-- The newest runs of one namespace, newest first: ?1 namespace, ?2 rows below this one, ?3 how many.
SELECT
    t.row, t.task, t.run, t.namespace, t.name, t.cluster, t.declared, t.spec, t.inputs, t.digest,
    t.parent, t.parent_run, t.parent_attempt, t.child_key, t.created, t.state, t.reason, t.message,
    t.attempt, t.attempt_state, t.failures, t.losses, t.excused, t.worker, t.reserved,
    t.attempt_started, t.started, t.finished, t.exit_code, t.media_type, t.result, t.stopped, t.due,
    t.suspended, t.pending_since, w.session, w.name, w.pod_uid, w.node
FROM task t LEFT JOIN worker w ON w.worker = t.worker
WHERE t.namespace = ?1 AND t.row < ?2
    AND t.run = (SELECT max(run) FROM task WHERE task = t.task)
ORDER BY t.row DESC LIMIT ?3;

-- name: named
-- Tasks of that name, declared ones first, then the newest: ?1 namespace, ?2 name.
SELECT
    t.row, t.task, t.run, t.namespace, t.name, t.cluster, t.declared, t.spec, t.inputs, t.digest,
    t.parent, t.parent_run, t.parent_attempt, t.child_key, t.created, t.state, t.reason, t.message,
    t.attempt, t.attempt_state, t.failures, t.losses, t.excused, t.worker, t.reserved,
    t.attempt_started, t.started, t.finished, t.exit_code, t.media_type, t.result, t.stopped, t.due,
    t.suspended, t.pending_since, w.session, w.name, w.pod_uid, w.node
FROM task t LEFT JOIN worker w ON w.worker = t.worker
WHERE t.namespace = ?1 AND t.name = ?2 ORDER BY t.declared DESC, t.row DESC LIMIT 1;

-- name: newest_state
-- Run number and state of the newest run.
SELECT run, state FROM task WHERE task = ? ORDER BY run DESC LIMIT 1;

-- name: child
-- The newest child of that key: ?1 parent, ?2 parent's run, ?3 key.
SELECT task, digest, parent_attempt FROM task
WHERE parent = ?1 AND parent_run = ?2 AND child_key = ?3 ORDER BY row DESC LIMIT 1;

-- name: child_states
-- How many children of one run are in each state: ?1 parent, ?2 parent's run.
SELECT state, count(*) FROM task WHERE parent = ?1 AND parent_run = ?2 GROUP BY state;

-- name: family_sizes
-- Children by state, for each parent run that is unfinished or has an unfinished child.
SELECT c.parent, c.parent_run, coalesce(p.declared, 0), c.state, count(*)
FROM task c LEFT JOIN task p ON p.task = c.parent AND p.run = c.parent_run
WHERE (c.parent, c.parent_run) IN (
    SELECT parent, parent_run FROM task WHERE finished IS NULL AND parent IS NOT NULL
    UNION SELECT task, run FROM task WHERE finished IS NULL
) GROUP BY 1, 2, 3, 4;

-- name: past_attempts
-- Attempts of one run that are over and did not succeed.
SELECT p.attempt, coalesce(w.name, ''), coalesce(w.node, ''), p.reserved, p.started, p.finished,
    p.ending, p.reason, p.message, p.exit_code
FROM past_attempt p LEFT JOIN worker w ON w.worker = p.worker
WHERE p.task_row = ? ORDER BY p.attempt;
