-- Migration 7: arguments in a table of their own, so that a task that is reserved and ends rewrites
-- few pages.

-- Arguments of calls that are too long for the row of `task`, by that row; those of earlier versions
-- are there, whatever their length.
CREATE TABLE argument (
    row  INTEGER PRIMARY KEY,
    data BLOB NOT NULL
);
