-- Migration 9: what attempts outside the manager have exchanged, where it is short.

-- By the row of the task: an append to the end of a table, where a file for each would take longer
-- than all the rest of a request.
CREATE TABLE output (
    row     INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    data    BLOB NOT NULL,
    PRIMARY KEY (row, attempt)
) WITHOUT ROWID;
