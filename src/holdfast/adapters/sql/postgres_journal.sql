-- The journal's statements that differ on PostgreSQL; the others are those of journal.sql.

-- name: append
-- Add a batch only if the one before it is the last one, and notify listeners: a stale owner adds nothing.
-- The primary key rejects a number that is taken. The batch before it must be there with the right hash; the first batch
-- needs an empty journal.
WITH added AS (
    INSERT INTO batch (number, term, first_event, last_event, time_ms, parent, hash, body)
    SELECT $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bytea, $7::bytea, $8::bytea
    WHERE EXISTS (SELECT FROM batch WHERE number = $1::bigint - 1 AND hash = $6::bytea)
       OR ($1::bigint = 1 AND $6::bytea = decode(repeat('00', 32), 'hex') AND NOT EXISTS (SELECT FROM batch))
    RETURNING number
)
SELECT pg_notify($9::text, number::text) FROM added;

-- name: append_in_partition
-- The same if the batch before it is in the same partition: no other partition is looked at, however many there are.
WITH added AS (
    INSERT INTO {partition} (number, term, first_event, last_event, time_ms, parent, hash, body)
    SELECT $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bytea, $7::bytea, $8::bytea
    WHERE EXISTS (SELECT FROM {partition} WHERE number = $1::bigint - 1 AND hash = $6::bytea)
    RETURNING number
)
SELECT pg_notify($9::text, number::text) FROM added;

-- name: partitions
-- All partitions, oldest first.
SELECT first_number, end_number FROM journal_partition ORDER BY first_number;

-- name: add_partition
-- Record a partition, in the transaction that creates it.
INSERT INTO journal_partition (first_number, end_number) VALUES ($1, $2);

-- name: drop_partition
-- Remove the record of a partition, in the transaction that drops it.
DELETE FROM journal_partition WHERE first_number = $1;

-- name: trim_batches
-- Delete batches up to a number; the caller has checked that a later one exists.
DELETE FROM batch WHERE number <= $1;

-- name: trim_attachments
-- Delete their payloads.
DELETE FROM attachment WHERE batch <= $1;
