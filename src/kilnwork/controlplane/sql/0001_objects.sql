-- The objects of the embedded API server, and the log of their latest changes.

-- Every object as it is now. `sequence` is its resourceVersion, `body` its JSON in UTF-8.
CREATE TABLE object (
    resource  TEXT    NOT NULL,  -- plural.group, or plural in the core group
    namespace TEXT    NOT NULL,  -- empty for cluster-wide resources
    name      TEXT    NOT NULL,
    sequence  INTEGER NOT NULL,
    body      BLOB    NOT NULL,
    UNIQUE (resource, namespace, name)
);

-- The latest changes, without gaps; the last one is always kept, so that numbering goes on.
-- Only the state before is kept: the state after is that before the next change of the same object,
-- or the object itself.
CREATE TABLE change (
    sequence  INTEGER PRIMARY KEY,
    action    TEXT    NOT NULL,  -- ADDED, MODIFIED or DELETED
    resource  TEXT    NOT NULL,
    namespace TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    previous  BLOB               -- NULL for a new object
);
