-- Replicas: whose a job is one of, where its payload is, and how many of how many must agree.
ALTER TABLE job ADD COLUMN parent bytea NOT NULL DEFAULT '';
ALTER TABLE job ADD COLUMN parent_event bigint NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN quorum_n bigint NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN quorum_m bigint NOT NULL DEFAULT 0;
