-- Migration 10: what the next attempt needs to go on with what a lost one has begun elsewhere.
ALTER TABLE task ADD COLUMN handover BLOB;
