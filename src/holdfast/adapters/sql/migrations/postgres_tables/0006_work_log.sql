-- Which stored evidence has messages of a job's work (EVD-005).
CREATE TABLE work_log (
    place    bigint PRIMARY KEY,
    event    bigint NOT NULL,
    task_id  bytea NOT NULL,
    lease_id bytea NOT NULL,
    attempt  bigint NOT NULL
);
CREATE INDEX work_log_by_task_id ON work_log (task_id, place);
ALTER TABLE evidence ADD COLUMN leases bigint NOT NULL DEFAULT 0;
