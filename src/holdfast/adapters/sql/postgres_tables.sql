-- The projection's statements that differ on PostgreSQL; the others are those of tables.sql.

-- name: put_checkpoint
-- Move the checkpoint, in the transaction of the rows it covers.
INSERT INTO checkpoint (one, number, term, last_event, time_ms, hash) VALUES (1, $1, $2, $3, $4, $5)
ON CONFLICT (one) DO UPDATE SET
    number = excluded.number,
    term = excluded.term,
    last_event = excluded.last_event,
    time_ms = excluded.time_ms,
    hash = excluded.hash;

-- name: merge_runs
-- Copy several runs into one, in key order, so that the new pages are written front to back.
INSERT INTO claim (run, key, rest, event, checksum, until_ms)
SELECT $1::bigint, key, rest, event, checksum, until_ms FROM claim WHERE run = ANY ($2::bigint[]) ORDER BY key, event;

-- name: delete_run_claims
-- Delete the claims of runs that were merged.
DELETE FROM claim WHERE run = ANY ($1::bigint[]);

-- name: delete_run
-- Delete the records of runs that were merged.
DELETE FROM sorted_run WHERE number = ANY ($1::bigint[]);

-- name: claim_keys
-- Keys of one run from a key on, as one array: a start reads millions, and one row a key takes three times as long.
SELECT ARRAY(SELECT key FROM claim WHERE run = $1 AND key >= $2 ORDER BY key LIMIT $3);

-- name: find_claims
-- Some claims, in whichever run each is, and the checkpoint, in one statement: both are of one moment.
SELECT checkpoint.number, checkpoint.term, checkpoint.last_event, checkpoint.time_ms, checkpoint.hash,
    found.key, found.rest, found.event, found.checksum, found.until_ms
FROM (SELECT 1 AS one) AS always
LEFT JOIN checkpoint ON checkpoint.one = always.one
LEFT JOIN (
    SELECT claim.key, claim.rest, claim.event, claim.checksum, claim.until_ms
    FROM sorted_run JOIN claim ON claim.run = sorted_run.number AND claim.key = ANY ($1::bigint[])
) AS found ON true;
