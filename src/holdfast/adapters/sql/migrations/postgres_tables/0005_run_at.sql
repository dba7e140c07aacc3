-- The time before which a job is not assigned (JOB-013).
ALTER TABLE job ADD COLUMN run_at_ms bigint NOT NULL DEFAULT 0;
