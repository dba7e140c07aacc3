-- Units of COMPUTE jobs (QUO-001).
ALTER TABLE provider_quota ADD COLUMN compute_reserved INTEGER NOT NULL DEFAULT 0;
ALTER TABLE provider_quota ADD COLUMN compute_committed INTEGER NOT NULL DEFAULT 0;

-- The input that a job names (JOB-003).
ALTER TABLE job ADD COLUMN input_digest BLOB NOT NULL DEFAULT x'';

-- How long an attempt of it may take (LEA-004).
ALTER TABLE job ADD COLUMN run_ms_max INTEGER NOT NULL DEFAULT 0;
