-- Migration 15: results of calls that later calls may use again.

-- The newest success of each key: a digest of function, code and arguments.
CREATE TABLE cached_result (
    namespace TEXT NOT NULL,
    key       BLOB NOT NULL,
    task      BLOB NOT NULL,       -- UUID of the task that has the result
    finished  REAL NOT NULL,       -- wall clock, seconds
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
CREATE INDEX cached_result_task ON cached_result (task);

-- However a task is forgotten: by age, by hand, with its object.
CREATE TRIGGER forget_cached_result AFTER DELETE ON task
BEGIN
    DELETE FROM cached_result WHERE task = old.task;
END;
