-- Migration 3: calls. A call is a task whose spec is a template that it shares with others; its
-- arguments are its own. Values beyond what is kept inline are blobs, named by digest and size.

CREATE TABLE template (
    template  INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    spec      BLOB NOT NULL              -- JSON
);

ALTER TABLE task ADD COLUMN template INTEGER;         -- null: it has a spec of its own
ALTER TABLE task ADD COLUMN arguments_type TEXT;      -- media type
ALTER TABLE task ADD COLUMN arguments BLOB;
ALTER TABLE task ADD COLUMN arguments_digest BLOB;    -- of the blob that holds them
ALTER TABLE task ADD COLUMN arguments_size INTEGER;
ALTER TABLE task ADD COLUMN arguments_blobs BLOB;     -- blobs that they refer to: 32 bytes each
ALTER TABLE task ADD COLUMN needs BLOB;               -- tasks whose results it takes: 16 bytes each
ALTER TABLE task ADD COLUMN source BLOB;              -- whose turn it takes in the queue
ALTER TABLE task ADD COLUMN delegate BLOB;            -- the task whose outcome becomes its own
ALTER TABLE task ADD COLUMN result_digest BLOB;       -- as for arguments
ALTER TABLE task ADD COLUMN result_size INTEGER;
ALTER TABLE task ADD COLUMN result_blobs BLOB;

-- Calls of drivers that have a key; child_key has it, as for children.
CREATE INDEX task_key ON task (namespace, child_key)
    WHERE parent IS NULL AND child_key IS NOT NULL;

-- Whether a template is still used.
CREATE INDEX task_template ON task (template) WHERE template IS NOT NULL;

-- Which rows refer to a blob: `user` is a row of task, or minus the number of a template.
CREATE TABLE blob_use (
    digest BLOB NOT NULL,
    user   INTEGER NOT NULL,
    PRIMARY KEY (digest, user)
) WITHOUT ROWID;
CREATE INDEX blob_use_user ON blob_use (user);

-- A run with the facts of its newest worker and the spec of its template: what `task_rows.TaskRow` is.
CREATE VIEW task_facts AS SELECT
    t.row, t.task, t.run, t.namespace, t.name, t.cluster, t.declared,
    CASE WHEN t.template IS NULL THEN t.spec ELSE p.spec END AS spec,
    t.inputs, t.digest, t.parent, t.parent_run, t.parent_attempt, t.child_key, t.created, t.state,
    t.reason, t.message, t.attempt, t.attempt_state, t.failures, t.losses, t.excused, t.worker,
    t.reserved, t.attempt_started, t.started, t.finished, t.exit_code, t.media_type, t.result,
    t.stopped, t.due, t.suspended, t.pending_since, t.released, t.template, t.arguments_type,
    t.arguments, t.arguments_digest, t.arguments_size, t.arguments_blobs, t.needs, t.source,
    t.delegate, t.result_digest, t.result_size, t.result_blobs, w.session, w.name AS worker_name,
    w.pod_uid, w.node
FROM task t
    LEFT JOIN worker w ON w.worker = t.worker
    LEFT JOIN template p ON p.template = t.template;
