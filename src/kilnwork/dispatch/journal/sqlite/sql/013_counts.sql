-- Migration 13: how many tasks there are, by what they run and by state, kept by each transaction.

-- Of newest runs, as lists show them. `function`: what a call calls, '' for any other task.
CREATE TABLE task_count (
    namespace TEXT NOT NULL,
    declared  INTEGER NOT NULL,
    function  TEXT NOT NULL,
    state     TEXT NOT NULL,
    number    INTEGER NOT NULL,
    PRIMARY KEY (namespace, declared, function, state)
) WITHOUT ROWID;

INSERT INTO task_count (namespace, declared, function, state, number)
SELECT t.namespace, t.declared, coalesce(p.function, CASE WHEN t.template IS NULL
        AND json_valid(CAST(t.spec AS TEXT))
        THEN json_extract(CAST(t.spec AS TEXT), '$.call.function') END, ''), t.state, count(*)
FROM task t LEFT JOIN (
    SELECT template, CASE WHEN json_valid(CAST(spec AS TEXT))
        THEN json_extract(CAST(spec AS TEXT), '$.call.function') END AS function
    FROM template
) p ON p.template = t.template
WHERE t.run = (SELECT max(r.run) FROM task r WHERE r.task = t.task)
GROUP BY 1, 2, 3, 4;

-- What runs, and what went wrong: found without a look at all that waits, or has ended well.
-- Not written with IN, for which SQLite would fill a table whenever a task changes.
CREATE INDEX task_state ON task (state, row)
WHERE state <> 'Success' AND state <> 'Staging' AND state <> 'Pending';
