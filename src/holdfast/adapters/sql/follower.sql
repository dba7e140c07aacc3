-- A follower's blocks, blobs and validators.

-- name: insert_block
INSERT INTO followed_block (height, header, payload) VALUES (?1, ?2, ?3)

-- name: insert_blob
INSERT INTO followed_blob (height, number, bytes, record) VALUES (?1, ?2, ?3, ?4)

-- name: update_blob
UPDATE followed_blob SET bytes = ?3, record = ?4 WHERE height = ?1 AND number = ?2

-- name: set_validators
INSERT INTO followed_validators (id, record) VALUES (0, ?1) ON CONFLICT (id) DO UPDATE SET record = excluded.record

-- name: get_validators
SELECT record FROM followed_validators

-- name: get_head
SELECT header FROM followed_block ORDER BY height DESC LIMIT 1

-- name: get_block
SELECT header, payload FROM followed_block WHERE height = ?1

-- name: list_blobs
SELECT record FROM followed_blob WHERE height = ?1 ORDER BY number

-- name: list_heights_here
SELECT DISTINCT height FROM followed_blob WHERE bytes = 'here' AND height > ?1 ORDER BY height LIMIT ?2
