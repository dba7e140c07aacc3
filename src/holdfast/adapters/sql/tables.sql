-- The projection's statements.

-- name: checkpoint
-- Up to where the tables are complete.
SELECT number, epoch, last_event, time_ms, hash FROM checkpoint WHERE one = 1;

-- name: put_checkpoint
-- Move the checkpoint, in the transaction of the rows it speaks of.
INSERT OR REPLACE INTO checkpoint (one, number, epoch, last_event, time_ms, hash) VALUES (1, ?1, ?2, ?3, ?4, ?5);

-- name: put_claim
-- Add a claim to a lot.
INSERT INTO claim (lot, key, event, checksum) VALUES (?1, ?2, ?3, ?4);

-- name: put_lot
-- Name a lot and its size.
INSERT INTO lot (number, size) VALUES (?1, ?2);

-- name: lots
-- All lots, smallest first.
SELECT number, size FROM lot ORDER BY size, number;

-- name: next_lot
-- A number no lot has.
SELECT coalesce(max(number), 0) + 1 FROM lot;

-- name: find_claim
-- A claim in whichever lot it is; few lots exist, so this is a handful of seeks.
SELECT event, checksum FROM lot JOIN claim ON claim.lot = lot.number AND claim.key = ?1;

-- name: merge_lot
-- Copy several lots into one, in key order, so that the new pages are written front to back.
INSERT INTO claim (lot, key, event, checksum)
SELECT ?1, key, event, checksum FROM claim WHERE lot IN (SELECT value FROM json_each(?2)) ORDER BY key;

-- name: drop_lot_claims
-- Remove the claims of a lot that was merged.
DELETE FROM claim WHERE lot = ?1;

-- name: drop_lot
-- Remove a lot that was merged.
DELETE FROM lot WHERE number = ?1;

-- name: claim_keys
-- Keys of one lot after a key.
SELECT key FROM claim WHERE lot = ?1 AND key > ?2 ORDER BY key LIMIT ?3;

-- name: claims
-- All claims as they can be found: those of lots that are named.
SELECT claim.key, claim.event, claim.checksum FROM lot JOIN claim ON claim.lot = lot.number;
