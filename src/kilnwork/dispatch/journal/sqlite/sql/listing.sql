-- Lists of tasks. `{narrow}`: see `statements.NARROWED`.

-- name: looked_at
-- The last of ?2 rows below row ?1: a list looks at so many at once, whatever it is to show of them.
-- What is in braces is a condition on the state, ?5, if any, for which there is an index.
SELECT min(row) FROM (SELECT f.row FROM task f WHERE f.row < ?1{narrow} ORDER BY f.row DESC LIMIT ?2);

-- name: listed
-- The newest runs of one namespace, newest first: ?1 namespace, rows below ?2 and from ?3 on, ?4 how
-- many. Only these, unless null: ?5 state, ?6 declared, ?7 parent, ?8 function.
SELECT * FROM {task_row} f
WHERE f.namespace = ?1 AND f.row < ?2 AND f.row >= ?3
    AND (?5 IS NULL OR f.state = ?5)
    AND (?6 IS NULL OR f.declared = ?6)
    AND (?7 IS NULL OR f.parent = ?7)
    AND (?8 IS NULL
        OR f.template IN (SELECT template FROM template
            WHERE namespace = ?1 AND json_extract(CAST(spec AS TEXT), '$.call.function') = ?8)
        OR (f.template IS NULL
            AND json_extract(CAST(f.spec AS TEXT), '$.call.function') = ?8))
    AND f.run = (SELECT max(run) FROM task WHERE task = f.task){narrow}
ORDER BY f.row DESC LIMIT ?4;

