-- Where PostgreSQL has a better statement.

-- name: insert_tag
INSERT INTO gateway_tag (tag, created_ms, id) SELECT tag, $2, $3 FROM unnest($1::bytea[]) AS added (tag)
ON CONFLICT (tag, created_ms, id) DO NOTHING

-- name: totals
SELECT coalesce(sum(items), 0)::bigint, coalesce(sum(bytes), 0)::bigint FROM gateway_usage
