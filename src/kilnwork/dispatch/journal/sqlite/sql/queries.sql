-- Every statement of the journal apart from its tables. `-- name:` gives the name that code uses;
-- the line after says what it is for. What is in braces are columns of a task, as `task_rows`
-- declares them (`statements.py`).

-- name: read_epoch
-- Who may write; checked inside each transaction.
SELECT epoch FROM leadership;

-- name: raise_epoch
-- A new dispatcher takes over.
UPDATE leadership SET epoch = epoch + 1;

-- name: raise_lease
-- How long leases may last that this or an earlier dispatcher has granted; it never falls.
UPDATE leadership SET lease_s = max(lease_s, ?) RETURNING lease_s;

-- name: identify
-- Which journal this is; the UUID that is given is for one that has none yet.
UPDATE leadership SET identity = coalesce(identity, ?) RETURNING identity, epoch;

-- name: forget_templates
-- When no submitter has named any yet: those that no task uses any more.
DELETE FROM template WHERE NOT EXISTS (
    SELECT 1 FROM task t WHERE t.template IS NOT NULL AND t.template = template.template
);

-- name: forget_template_blobs
-- After `forget_templates`: what they referred to.
DELETE FROM blob_use WHERE user < 0 AND -user NOT IN (SELECT template FROM template);

-- name: count_workers
SELECT count(*) FROM worker;

-- name: forget_workers
-- Sessions of which no attempt is left: a look at every task.
DELETE FROM worker WHERE worker NOT IN (
    SELECT worker FROM task WHERE worker IS NOT NULL
    UNION ALL SELECT worker FROM past_attempt WHERE worker IS NOT NULL
);

-- name: insert_worker
-- A session of a worker, with its first attempt.
INSERT INTO worker (worker, session, namespace, cluster, name, pod_uid, node)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: insert_task
-- A new run of a task, as it is when the batch is written. One whose id another submitter has taken
-- (who chose both ids must have made that so) is not kept, and does no harm.
INSERT INTO task ({stored}) VALUES ({stored_marks}) ON CONFLICT (task, run) DO NOTHING;

-- name: update_task
-- All that may change of a run. A run that has ended keeps its state: finality is checked here too.
UPDATE task SET {changes} WHERE row = {row} AND (finished IS NULL OR state = {state});

-- name: insert_template
-- What calls share; before the first of them.
INSERT INTO template (template, namespace, spec) VALUES (?, ?, ?);

-- name: insert_calls
-- New calls, pending or reserved for the first time. The row of values is repeated; what no column
-- is named for is as in the table, or as nothing has happened yet.
INSERT INTO task ({new_call}) VALUES {new_call_row} ON CONFLICT (task, run) DO NOTHING;

-- name: insert_arguments
-- What is too long for the rows of new calls, after `insert_calls`, unless that has not kept the call.
-- The row of values is repeated.
INSERT INTO argument (row, data) SELECT column1, column2 FROM (VALUES (?, ?))
WHERE EXISTS (SELECT 1 FROM task WHERE task.row = column1);

-- name: reserve_calls
-- The first reservation of calls that were pending before. The row of values is repeated.
UPDATE task SET
    state = 'Staging', attempt_state = 'Reserved', attempt = 1, message = '', {reserved}
FROM (VALUES {reserved_row}) AS v
WHERE task.row = v.column1 AND task.finished IS NULL;

-- name: finish_calls
-- Calls that ended well, with a result that is kept inline. The row of values is repeated.
UPDATE task SET
    state = 'Success', attempt_state = 'Succeeded', stopped = 1, {finished}
FROM (VALUES {finished_row}) AS v
WHERE task.row = v.column1 AND task.finished IS NULL;

-- name: insert_past_attempt
-- An attempt is over and did not succeed.
INSERT OR REPLACE INTO past_attempt (
    task_row, attempt, worker, reserved, started, finished, ending, reason, message, exit_code,
    cpu_seconds, peak_bytes
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: release_task
-- The object of a task is gone: no controller follows any of its runs.
UPDATE task SET released = 1 WHERE task = ?;

-- name: use_blobs
-- A row refers to a blob.
INSERT OR IGNORE INTO blob_use (digest, user) VALUES (?, ?);

-- name: blob_used
-- Whether any row refers to a blob.
SELECT EXISTS (SELECT 1 FROM blob_use WHERE digest = ?);

-- name: blobs_of
-- The blobs that the runs of a task refer to, and the namespace whose they are.
SELECT t.namespace, u.digest FROM task t JOIN blob_use u ON u.user = t.row WHERE t.task = ?;

-- name: forget_blobs
-- After `forget_rows`: what rows ?1 to ?2 referred to.
DELETE FROM blob_use WHERE user BETWEEN ?1 AND ?2;

-- name: forget_attempts
-- After `forget_rows`: the history of rows ?1 to ?2.
DELETE FROM past_attempt WHERE task_row BETWEEN ?1 AND ?2;

-- name: forget_arguments
-- After `forget_rows`: the arguments of rows ?1 to ?2.
DELETE FROM argument WHERE row BETWEEN ?1 AND ?2;

-- name: keep_cached
-- A success that later calls may use again; the newest counts.
INSERT INTO cached_result (namespace, key, task, finished) VALUES (?, ?, ?, ?)
ON CONFLICT (namespace, key) DO UPDATE SET task = excluded.task, finished = excluded.finished;

-- name: cached
-- The newest success of a key, as long as the newest run of its task is one; when it ended, and its
-- result.
SELECT c.task, c.finished, t.media_type, t.result, t.result_digest, t.result_size, t.result_blobs
FROM cached_result c JOIN task t ON t.task = c.task
WHERE c.namespace = ? AND c.key = ? AND t.state = 'Success'
    AND t.run = (SELECT max(run) FROM task n WHERE n.task = c.task);

-- name: insert_outputs
-- What attempts have exchanged; one that says it again says the same. The row of values is repeated.
INSERT OR REPLACE INTO output (row, attempt, data) SELECT column1, column2, column3
FROM (VALUES (?, ?, ?));

-- name: output
-- What one attempt has exchanged.
SELECT data FROM output WHERE row = ? AND attempt = ?;

-- name: forget_outputs
-- After `forget_rows`: what attempts of rows ?1 to ?2 have exchanged.
DELETE FROM output WHERE row BETWEEN ?1 AND ?2;

-- name: count_tasks
-- So many more tasks of one function and state than before.
INSERT INTO task_count (namespace, declared, function, state, number) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET number = number + excluded.number;

-- name: counted_rows
-- As what the tasks of these rows are counted, and how many as each: calls of one template together,
-- so that its spec is read once. The row of values is repeated.
SELECT c.namespace, c.declared, coalesce(c.function, {shared_function}), c.state, c.number
FROM (
    SELECT t.namespace, t.declared, t.template,
        CASE WHEN t.template IS NULL THEN {own_function} END AS function,
        t.state, count(*) AS number
    FROM task t WHERE t.row IN (VALUES (?)) GROUP BY 1, 2, 3, 4, 5
) c LEFT JOIN template p ON p.template = c.template;

-- name: counted_before
-- As what task ?1 was counted before its run ?2, unless ?3 is not the row of that run.
SELECT t.namespace, t.declared, {function}, t.state, 1
FROM task t LEFT JOIN template p ON p.template = t.template
WHERE t.task = ?1 AND t.run = (SELECT max(run) FROM task WHERE task = ?1 AND run < ?2)
    AND EXISTS (SELECT 1 FROM task WHERE row = ?3 AND task = ?1);

-- name: state_of_row
-- What is written of the state of a run.
SELECT state FROM task WHERE row = ?;

-- name: forget_counts
-- Functions of which no task is left.
DELETE FROM task_count WHERE number = 0;

-- name: counts
-- How many tasks there are, by what they run and by state; ?1: of one namespace, null: of all.
SELECT namespace, declared, function, state, number FROM task_count
WHERE number <> 0 AND (?1 IS NULL OR namespace = ?1);

-- name: rows_of_tasks
-- All runs of tasks that are forgotten: task and row, the newest run of each task last. The row of
-- values is repeated.
SELECT task, row FROM task WHERE task IN (VALUES (?)) ORDER BY task, run;

-- name: forget_rows
-- The runs of tasks that are forgotten, by their rows. The row of values is repeated.
DELETE FROM task WHERE row IN (VALUES (?));

-- name: old_runs
-- One batch of rows in order of age: ?2: rows above this one, ?3: how many. Whether nothing but its
-- parent may need the task: each run of it ended before ?1, it has no object and no unfinished child.
-- Its parent, if the journal has that, whose next attempt would look for it, or whose counts show it.
-- About how many bytes the row and its blobs are.
SELECT t.row, t.task, t.namespace,
    t.finished < ?1 AND (t.declared = 0 OR t.released = 1)
    AND NOT EXISTS (SELECT 1 FROM task r WHERE r.task = t.task
        AND (r.finished IS NULL OR r.finished >= ?1))
    AND NOT EXISTS (SELECT 1 FROM task c WHERE c.parent = t.task AND c.finished IS NULL),
    (SELECT p.task FROM task p WHERE p.task = t.parent LIMIT 1),
    t.parent IS NULL AND t.child_key IS NOT NULL,
    300 + length(t.spec) + coalesce(length(t.result), 0) + coalesce(t.result_size, 0)
        + coalesce(length(t.arguments), 0) + coalesce(t.arguments_size, 0)
FROM task t WHERE t.row > ?2 AND t.created < ?1 ORDER BY t.row LIMIT ?3;

-- name: next_rows
-- The first free row numbers of task, worker and template.
SELECT
    (SELECT coalesce(max(row), 0) + 1 FROM task),
    (SELECT coalesce(max(worker), 0) + 1 FROM worker),
    (SELECT coalesce(max(template), 0) + 1 FROM template);

-- name: templates
-- Every template, in order.
SELECT template, namespace, spec FROM template ORDER BY template;

-- name: unfinished
-- All that memory must have again after a start, in order of submission.
SELECT * FROM {task_row} f WHERE f.finished IS NULL ORDER BY f.row;

-- name: newest_run
-- The newest run of a task.
SELECT * FROM {task_row} f WHERE f.task = ? ORDER BY f.run DESC LIMIT 1;

-- name: one_run
-- One run of a task.
SELECT * FROM {task_row} f WHERE f.task = ? AND f.run = ?;

-- name: declared
-- The newest run of every declared task whose object was not gone yet.
SELECT * FROM {task_row} f
WHERE f.declared = 1 AND f.released = 0
    AND f.run = (SELECT max(run) FROM task WHERE task = f.task)
ORDER BY f.row;

-- name: named
-- Tasks of that name, declared ones first, then the newest: ?1 namespace, ?2 name.
SELECT * FROM {task_row} f WHERE f.namespace = ?1 AND f.name = ?2
ORDER BY f.declared DESC, f.row DESC LIMIT 1;

-- name: begins_with
-- Tasks of namespace ?1 whose ids are from ?2 to ?3, at most ?4.
SELECT DISTINCT task FROM task WHERE task BETWEEN ?2 AND ?3 AND namespace = ?1 LIMIT ?4;

-- name: ends_with
-- Tasks of namespace ?1 whose ids end with the bytes ?2, and with the hexadecimal digits ?3, at most
-- ?4: a look at every id, in the index alone.
SELECT DISTINCT t.task FROM task t
WHERE t.row IN (SELECT row FROM task WHERE substr(task, -length(?2)) = ?2)
    AND t.namespace = ?1 AND substr(hex(t.task), -length(?3)) = ?3
LIMIT ?4;

-- name: child
-- The newest child of that key: ?1 parent, ?2 parent's run, ?3 key.
SELECT * FROM {task_row} f WHERE f.parent = ?1 AND f.parent_run = ?2 AND f.child_key = ?3
ORDER BY f.row DESC LIMIT 1;

-- name: keyed
-- The newest call that a driver gave that key: ?1 namespace, ?2 key.
SELECT * FROM {task_row} f WHERE f.namespace = ?1 AND f.child_key = ?2 AND f.parent IS NULL
ORDER BY f.row DESC LIMIT 1;

-- name: child_states
-- How many children of one run are in each state: ?1 parent, ?2 parent's run. A child that was
-- started again by hand has a row without a key, which does not count.
SELECT state, count(*) FROM task
WHERE parent = ?1 AND parent_run = ?2 AND child_key IS NOT NULL GROUP BY state;

-- name: unfinished_children
-- Children of one run that are not over: ?1 parent, ?2 parent's run.
SELECT task FROM task
WHERE parent = ?1 AND parent_run = ?2 AND child_key IS NOT NULL AND finished IS NULL ORDER BY row;

-- name: failed_dependents
-- Tasks of a namespace that take results of others and whose newest run has failed: a look at all
-- that have failed, by the index `task_state`, whose terms are repeated.
SELECT t.task, t.needs FROM task t
WHERE t.state IN ('Failed', 'Killed')
    AND t.state <> 'Success' AND t.state <> 'Staging' AND t.state <> 'Pending'
    AND t.needs IS NOT NULL AND t.namespace = ?
    AND t.run = (SELECT max(run) FROM task WHERE task = t.task)
ORDER BY t.row;

-- name: take_over
-- The children of an earlier run of a task are those of another run of it, which has not requested
-- them yet: ?1 task, ?2 the earlier run, ?3 the other one.
UPDATE task SET parent_run = ?3, parent_attempt = 0
WHERE parent = ?1 AND parent_run = ?2 AND child_key IS NOT NULL;

-- name: supersede
-- The rows of a child before its newest run are no children any more: ?1 task, ?2 that run.
UPDATE task SET child_key = NULL
WHERE task = ?1 AND run < ?2 AND parent IS NOT NULL AND child_key IS NOT NULL;

-- name: family_sizes
-- Children by state, for each parent run that is unfinished or has an unfinished child.
SELECT c.parent, c.parent_run, coalesce(p.declared, 0), c.state, count(*)
FROM task c LEFT JOIN task p ON p.task = c.parent AND p.run = c.parent_run
WHERE (c.parent, c.parent_run) IN (
    SELECT parent, parent_run FROM task WHERE finished IS NULL AND parent IS NOT NULL
    UNION SELECT task, run FROM task WHERE finished IS NULL
) AND c.child_key IS NOT NULL GROUP BY 1, 2, 3, 4;

-- name: past_attempts
-- Attempts of one run that are over and did not succeed.
SELECT p.attempt, coalesce(w.name, ''), coalesce(w.node, ''), p.reserved, p.started, p.finished,
    p.ending, p.reason, p.message, p.exit_code, p.cpu_seconds, p.peak_bytes
FROM past_attempt p LEFT JOIN worker w ON w.worker = p.worker
WHERE p.task_row = ? ORDER BY p.attempt;
