-- Which stored evidence has messages of a job's work (EVD-005).
CREATE TABLE work_log (
    place    INTEGER PRIMARY KEY,
    event    INTEGER NOT NULL,
    task_id  BLOB    NOT NULL,
    lease_id BLOB    NOT NULL,
    attempt  INTEGER NOT NULL
) STRICT;
CREATE INDEX work_log_by_task_id ON work_log (task_id, place);
ALTER TABLE evidence ADD COLUMN leases INTEGER NOT NULL DEFAULT 0;
