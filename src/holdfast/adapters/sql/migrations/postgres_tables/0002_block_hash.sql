-- A block by its hash: what clients of blobs know of it (SRV-001).
CREATE INDEX block_by_hash ON block (hash);
