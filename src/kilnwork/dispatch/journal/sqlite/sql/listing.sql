-- Lists of tasks. `{narrow}`: a condition on the state, which is ?5, for which there is an index
-- (`statements.NARROWED`); `{wanted}`: all that is asked for (`statements._WANTED`).

-- name: looked_at
-- The last of ?2 rows below row ?1: a list looks at so many at once, whatever it is to show of them.
SELECT min(row) FROM (SELECT f.row FROM task f WHERE f.row < ?1{narrow} ORDER BY f.row DESC LIMIT ?2);

-- name: listed
-- The newest runs, newest first: rows below ?2 and from ?3 on, ?4 how many. All but ?1 namespace, ?5
-- state, ?6 declared, ?7 parent and ?8 function, unless they are null, and runs before the newest
-- are left out.
SELECT * FROM {task_row} f WHERE f.row < ?2 AND f.row >= ?3 AND {wanted}{narrow}
ORDER BY f.row DESC LIMIT ?4;
