-- Migration 16: how many items of a job have succeeded since its last redrive.

ALTER TABLE job ADD COLUMN successes INTEGER NOT NULL DEFAULT 0;
UPDATE job SET successes = succeeded;
