-- What PostgreSQL says differently of the journal's statements; the others are those of journal.sql.

-- name: append
-- Add a batch only where the one before it is the last one, and tell who listens: a stale owner adds nothing.
-- Its own number cannot be taken (the key), the number before it must be there with the right hash, or nothing at all.
WITH added AS (
    INSERT INTO batch (number, epoch, first_event, last_event, time_ms, parent, hash, body)
    SELECT $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bytea, $7::bytea, $8::bytea
    WHERE EXISTS (SELECT FROM batch WHERE number = $1::bigint - 1 AND hash = $6::bytea)
       OR ($1::bigint = 1 AND $6::bytea = decode(repeat('00', 32), 'hex') AND NOT EXISTS (SELECT FROM batch))
    RETURNING number
)
SELECT pg_notify($9::text, number::text) FROM added;

-- name: append_within
-- The same where the batch before it is in the same partition: however many others there are, none is looked at.
WITH added AS (
    INSERT INTO {part} (number, epoch, first_event, last_event, time_ms, parent, hash, body)
    SELECT $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bytea, $7::bytea, $8::bytea
    WHERE EXISTS (SELECT FROM {part} WHERE number = $1::bigint - 1 AND hash = $6::bytea)
    RETURNING number
)
SELECT pg_notify($9::text, number::text) FROM added;

-- name: parts
-- All partitions, oldest first.
SELECT first_number, end_number FROM part ORDER BY first_number;

-- name: add_part
-- Note a partition, in the transaction that makes it.
INSERT INTO part (first_number, end_number) VALUES ($1, $2);

-- name: drop_part
-- Forget a partition, in the transaction that drops it.
DELETE FROM part WHERE first_number = $1;

-- name: trim_batches
-- Let go of batches up to a number; the caller has seen that a later one exists.
DELETE FROM batch WHERE number <= $1;

-- name: trim_attachments
-- Let go of their payloads.
DELETE FROM attachment WHERE batch <= $1;
