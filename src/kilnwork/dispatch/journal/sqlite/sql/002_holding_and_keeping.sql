-- Migration 2: tasks that are held back, since when they wait, and whether anybody follows them.

-- 1: no attempt starts before it is let go.
ALTER TABLE task ADD COLUMN suspended INTEGER NOT NULL DEFAULT 0;

-- Since when it waits, for its timeouts; null: since it was created (journals of version 1).
ALTER TABLE task ADD COLUMN pending_since REAL;

-- 1: its Task object is gone, so nobody follows it any more.
ALTER TABLE task ADD COLUMN released INTEGER NOT NULL DEFAULT 0;

CREATE INDEX task_followed ON task (row) WHERE declared = 1 AND released = 0;
