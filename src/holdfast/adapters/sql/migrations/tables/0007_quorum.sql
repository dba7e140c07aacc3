-- Replicas: whose a job is one of, where its payload is, and how many of how many must agree.
ALTER TABLE job ADD COLUMN parent BLOB NOT NULL DEFAULT x'';
ALTER TABLE job ADD COLUMN parent_event INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN quorum_n INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN quorum_m INTEGER NOT NULL DEFAULT 0;
