-- Migration 4: which journal this is, and for how long it has granted leases.

-- A UUID, null until somebody asks for it; a copy of the file has the same.
ALTER TABLE leadership ADD COLUMN identity TEXT;

-- The longest lease that a dispatcher of this journal has granted, seconds. Workers of an earlier
-- dispatcher may hold one of that length.
ALTER TABLE leadership ADD COLUMN lease_s REAL NOT NULL DEFAULT 0;
