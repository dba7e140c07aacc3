-- The journal's statements.

-- name: append
-- Add a batch only if its number is the next one and its parent is the last one: a stale owner changes no row.
INSERT INTO batch (number, term, first_event, last_event, time_ms, parent, hash, body)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
WHERE ?1 = 1 + coalesce((SELECT max(number) FROM batch), 0)
  AND ?6 = coalesce((SELECT hash FROM batch WHERE number = ?1 - 1), zeroblob(32));

-- name: attach
-- Store a large payload beside the batch that refers to it.
INSERT INTO attachment (batch, digest, raw) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING;

-- name: head
-- The last batch.
SELECT number, term, last_event, time_ms, hash FROM batch ORDER BY number DESC LIMIT 1;

-- name: last_by_index
-- The number of the last batch, found through the index: if it differs from the head, the file is damaged.
SELECT coalesce((SELECT number FROM batch INDEXED BY batch_by_event ORDER BY last_event DESC, number DESC LIMIT 1), 0);

-- name: read
-- Batches after one number up to another, in order.
SELECT number, term, first_event, last_event, time_ms, parent, body, hash
FROM batch WHERE number > ?1 AND number <= ?2 ORDER BY number LIMIT ?3;

-- name: batch_of
-- The batch that holds an event: the first one that ends at or after it.
SELECT number FROM batch WHERE last_event >= ?1 ORDER BY last_event, number LIMIT 1;

-- name: attachment
-- A large payload by its batch and digest.
SELECT raw FROM attachment WHERE batch = ?1 AND digest = ?2;

-- name: attachments
-- All large payloads of a batch.
SELECT digest, raw FROM attachment WHERE batch = ?1 ORDER BY digest;

-- name: stored_payloads
-- The large payloads stored beside the batches that hold the events after one, up to another.
SELECT batch, digest, length(raw) FROM attachment
WHERE batch >= (SELECT number FROM batch WHERE last_event > ?1 ORDER BY last_event, number LIMIT 1)
  AND batch <= coalesce(
      (SELECT number FROM batch WHERE last_event >= ?2 ORDER BY last_event, number LIMIT 1),
      (SELECT max(number) FROM batch)
  )
ORDER BY batch, digest;

-- name: delete_payload
-- Delete a large payload that retention has released.
DELETE FROM attachment WHERE batch = ?1 AND digest = ?2;

-- name: trimmed_until
-- The number before the first batch that is stored.
SELECT coalesce(min(number) - 1, 0) FROM batch;

-- name: trim_batches
-- Delete batches up to a number, never the last one.
DELETE FROM batch WHERE number <= ?1 AND number < (SELECT max(number) FROM batch);

-- name: trim_attachments
-- Delete the payloads of batches that were trimmed.
DELETE FROM attachment WHERE batch < (SELECT min(number) FROM batch);
