-- The journal's statements.

-- name: append
-- Add a batch only if its number is the next one and its parent is the last one: a stale owner changes no row.
INSERT INTO batch (number, epoch, first_event, last_event, time_ms, parent, hash, body)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
WHERE ?1 = 1 + coalesce((SELECT max(number) FROM batch), 0)
  AND ?6 = coalesce((SELECT hash FROM batch WHERE number = ?1 - 1), zeroblob(32));

-- name: attach
-- Keep a large payload beside the batch that speaks of it.
INSERT INTO attachment (batch, digest, raw) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING;

-- name: tip
-- The last batch.
SELECT number, epoch, last_event, time_ms, hash FROM batch ORDER BY number DESC LIMIT 1;

-- name: end
-- The last batch by the other way to it, the index: where the two disagree the file is damaged.
SELECT coalesce((SELECT number FROM batch INDEXED BY batch_by_event ORDER BY last_event DESC, number DESC LIMIT 1), 0);

-- name: read
-- Batches after one number up to another, in order.
SELECT number, epoch, first_event, last_event, time_ms, parent, body, hash
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

-- name: attached
-- Which large payloads lie beside the batches that hold events after one, up to another.
SELECT batch, digest, length(raw) FROM attachment
WHERE batch >= (SELECT number FROM batch WHERE last_event > ?1 ORDER BY last_event, number LIMIT 1)
  AND batch <= coalesce(
      (SELECT number FROM batch WHERE last_event >= ?2 ORDER BY last_event, number LIMIT 1),
      (SELECT max(number) FROM batch)
  )
ORDER BY batch, digest;

-- name: let_go
-- Delete a large payload that retention has let go.
DELETE FROM attachment WHERE batch = ?1 AND digest = ?2;

-- name: floor
-- The last batch before the first one that is kept.
SELECT coalesce(min(number) - 1, 0) FROM batch;

-- name: trim_batches
-- Let go of batches that are kept elsewhere, never of the last one.
DELETE FROM batch WHERE number <= ?1 AND number < (SELECT max(number) FROM batch);

-- name: trim_attachments
-- Let go of the payloads of batches that are gone.
DELETE FROM attachment WHERE batch < (SELECT min(number) FROM batch);
