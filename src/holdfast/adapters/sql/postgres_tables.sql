-- What PostgreSQL says differently of the projection's statements; the others are those of tables.sql.

-- name: put_checkpoint
-- Move the checkpoint, in the transaction of the rows it speaks of.
INSERT INTO checkpoint (one, number, epoch, last_event, time_ms, hash) VALUES (1, $1, $2, $3, $4, $5)
ON CONFLICT (one) DO UPDATE SET
    number = excluded.number,
    epoch = excluded.epoch,
    last_event = excluded.last_event,
    time_ms = excluded.time_ms,
    hash = excluded.hash;

-- name: merge_lot
-- Copy several lots into one, in key order, so that the new pages are written front to back.
INSERT INTO claim (lot, key, event, checksum)
SELECT $1::bigint, key, event, checksum FROM claim WHERE lot = ANY ($2::bigint[]) ORDER BY key;

-- name: drop_lot_claims
-- Remove the claims of lots that were merged.
DELETE FROM claim WHERE lot = ANY ($1::bigint[]);

-- name: drop_lot
-- Remove lots that were merged.
DELETE FROM lot WHERE number = ANY ($1::bigint[]);

-- name: claim_keys
-- Keys of one lot after a key, as one array: a start reads millions, and a row for each takes thrice as long.
SELECT ARRAY(SELECT key FROM claim WHERE lot = $1 AND key > $2 ORDER BY key LIMIT $3);
