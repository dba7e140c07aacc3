-- The gateway's index. The statements that search are built in item_queries.py.

-- name: insert_item
INSERT INTO gateway_item (id, created_ms, size, content_type, owner, target, raw_tags, key_id, is_public)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (id) DO NOTHING RETURNING id

-- name: publish_item
UPDATE gateway_item SET is_public = 1, created_ms = ?2 WHERE id = ?1 AND is_public = 0 RETURNING id

-- name: insert_tag
INSERT INTO gateway_tag (tag, created_ms, id) VALUES (?1, ?2, ?3) ON CONFLICT (tag, created_ms, id) DO NOTHING

-- name: insert_entry
INSERT INTO gateway_entry (bucket, folder, id, name, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (bucket, folder, id, name) DO NOTHING

-- name: add_usage
INSERT INTO gateway_usage (key_id, items, bytes) VALUES (?1, 1, ?2)
ON CONFLICT (key_id) DO UPDATE SET items = gateway_usage.items + 1, bytes = gateway_usage.bytes + excluded.bytes

-- name: get_item
SELECT id, created_ms, size, content_type, owner, target, raw_tags, key_id, is_public FROM gateway_item WHERE id = ?1

-- name: totals
SELECT coalesce(sum(items), 0), coalesce(sum(bytes), 0) FROM gateway_usage

-- name: usage
SELECT items, bytes FROM gateway_usage WHERE key_id = ?1

-- name: entries
SELECT bucket, folder, id, name, created_ms FROM gateway_entry WHERE bucket = ?1 ORDER BY folder, id, name LIMIT ?2

-- name: has_item
SELECT 1 FROM gateway_item WHERE id = ?1 AND is_public = 1

-- name: has_entry
SELECT 1 FROM gateway_entry WHERE bucket = ?1 AND folder = ?2 AND id = ?3 AND name = ?4

-- name: get_complete
SELECT value FROM gateway_state WHERE name = 'complete'

-- name: set_complete
INSERT INTO gateway_state (name, value) VALUES ('complete', ?1) ON CONFLICT (name) DO UPDATE SET value = excluded.value
