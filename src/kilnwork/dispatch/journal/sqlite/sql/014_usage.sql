-- Migration 14: what attempts have used, and how many were taken back before they began.

-- Attempts of this run that no worker has begun.
ALTER TABLE task ADD COLUMN unstarted INTEGER NOT NULL DEFAULT 0;

-- Of the newest attempt, once it is over; null: not known.
ALTER TABLE task ADD COLUMN cpu_seconds REAL;
ALTER TABLE task ADD COLUMN peak_bytes INTEGER;       -- resident memory

-- The same of attempts before.
ALTER TABLE past_attempt ADD COLUMN cpu_seconds REAL;
ALTER TABLE past_attempt ADD COLUMN peak_bytes INTEGER;
