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

-- name: pages_between
-- In each run the pages that can have claim ids from one to another.
SELECT claim_page.records FROM sorted_run JOIN claim_page ON claim_page.run = sorted_run.number
WHERE claim_page.first <= $2::bytea AND claim_page.first >= coalesce(
    (
        SELECT page.first FROM claim_page AS page
        WHERE page.run = sorted_run.number AND page.first <= $1::bytea ORDER BY page.first DESC LIMIT 1
    ), $1::bytea
) LIMIT $3::bigint;

-- name: run_pages
-- The pages of some runs.
SELECT records FROM claim_page WHERE run = ANY ($1::bigint[]);

-- name: delete_run_pages
-- Delete the pages of runs that were merged or are over.
DELETE FROM claim_page WHERE run = ANY ($1::bigint[]);

-- name: delete_run
-- Delete the records of runs that were merged or are over.
DELETE FROM sorted_run WHERE number = ANY ($1::bigint[]);

-- name: find_claims
-- The records of some claim ids, in whichever run each is, and the checkpoint, in one statement: both are of one moment.
SELECT checkpoint.number, checkpoint.term, checkpoint.last_event, checkpoint.time_ms, checkpoint.hash, found.record
FROM (SELECT 1 AS one) AS always
LEFT JOIN checkpoint ON checkpoint.one = always.one
LEFT JOIN (
    SELECT substring(page.records FROM position(wanted.id IN page.records) FOR $2::integer) AS record
    FROM sorted_run CROSS JOIN unnest($1::bytea[]) AS wanted (id)
    CROSS JOIN LATERAL (
        SELECT records FROM claim_page
        WHERE run = sorted_run.number AND first <= wanted.id ORDER BY first DESC LIMIT 1
    ) AS page
    WHERE position(wanted.id IN page.records) > 0
) AS found ON true;
