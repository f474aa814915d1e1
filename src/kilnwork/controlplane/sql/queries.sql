-- Statements of controlplane.database, by name.

-- name: load_objects
-- All objects; read once at start.
SELECT resource, namespace, name, sequence, body FROM object;

-- name: load_changes
-- The log, newest first; read once at start.
SELECT sequence, action, resource, namespace, name, previous FROM change ORDER BY sequence DESC;

-- name: put_object
-- Create or replace.
INSERT INTO object (resource, namespace, name, sequence, body) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (resource, namespace, name) DO UPDATE SET sequence = ?4, body = ?5;

-- name: remove_object
DELETE FROM object WHERE resource = ?1 AND namespace = ?2 AND name = ?3;

-- name: add_change
INSERT INTO change (sequence, action, resource, namespace, name, previous)
VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: forget_changes
-- Compaction: those before ?1 can no longer be resumed from.
DELETE FROM change WHERE sequence < ?1;
