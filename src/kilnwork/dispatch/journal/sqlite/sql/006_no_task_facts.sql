-- Migration 6: statements name the columns of a task themselves; the view is no longer used.
DROP VIEW task_facts;
