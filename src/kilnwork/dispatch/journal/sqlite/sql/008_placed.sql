-- Migration 8: the node of an attempt that no worker runs, as its executor says.
ALTER TABLE task ADD COLUMN placed TEXT NOT NULL DEFAULT '';
