-- The projection's statements.

-- name: checkpoint
-- The batch up to which the tables are complete.
SELECT number, term, last_event, time_ms, hash FROM checkpoint WHERE one = 1;

-- name: put_checkpoint
-- Move the checkpoint, in the transaction of the rows it covers.
INSERT OR REPLACE INTO checkpoint (one, number, term, last_event, time_ms, hash) VALUES (1, ?1, ?2, ?3, ?4, ?5);

-- name: add_claim
-- Add a claim to a run.
INSERT INTO claim (run, key, rest, event, checksum, until_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: add_run
-- Record a run and its size; claims count only once their run is recorded.
INSERT INTO sorted_run (number, size) VALUES (?1, ?2);

-- name: list_runs
-- All runs, smallest first.
SELECT number, size FROM sorted_run ORDER BY size, number;

-- name: next_run
-- A number that no run has.
SELECT coalesce(max(number), 0) + 1 FROM sorted_run;

-- name: find_claim
-- A claim in whichever run it is; there are few runs, so this is a handful of seeks.
SELECT key, rest, event, checksum, until_ms FROM sorted_run JOIN claim
ON claim.run = sorted_run.number AND claim.key = ?1;

-- name: merge_runs
-- Copy several runs into one, in key order, so that the new pages are written front to back.
INSERT INTO claim (run, key, rest, event, checksum, until_ms)
SELECT ?1, key, rest, event, checksum, until_ms FROM claim WHERE run IN (SELECT value FROM json_each(?2))
ORDER BY key, event;

-- name: delete_run_claims
-- Delete the claims of a run that was merged.
DELETE FROM claim WHERE run = ?1;

-- name: delete_run
-- Delete the record of a run that was merged.
DELETE FROM sorted_run WHERE number = ?1;

-- name: claim_keys
-- Keys of one run from a key on.
SELECT key FROM claim WHERE run = ?1 AND key >= ?2 ORDER BY key LIMIT ?3;

-- name: claims
-- All claims of the recorded runs.
SELECT claim.key, claim.rest, claim.event, claim.checksum, claim.until_ms
FROM sorted_run JOIN claim ON claim.run = sorted_run.number;
