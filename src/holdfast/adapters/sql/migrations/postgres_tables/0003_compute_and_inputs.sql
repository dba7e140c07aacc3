-- Units of COMPUTE jobs (QUO-001).
ALTER TABLE provider_quota ADD COLUMN compute_reserved bigint NOT NULL DEFAULT 0;
ALTER TABLE provider_quota ADD COLUMN compute_committed bigint NOT NULL DEFAULT 0;

-- The input that a job names (JOB-003).
ALTER TABLE job ADD COLUMN input_digest bytea NOT NULL DEFAULT '';

-- How long an attempt of it may take (LEA-004).
ALTER TABLE job ADD COLUMN run_ms_max bigint NOT NULL DEFAULT 0;
