-- The projection's statements.

-- name: checkpoint
-- The batch up to which the tables are complete.
SELECT number, term, last_event, time_ms, hash FROM checkpoint WHERE one = 1;

-- name: put_checkpoint
-- Move the checkpoint, in the transaction of the rows it covers.
INSERT OR REPLACE INTO checkpoint (one, number, term, last_event, time_ms, hash) VALUES (1, ?1, ?2, ?3, ?4, ?5);

-- name: add_page
-- Add a page of claims to a run.
INSERT INTO claim_page (run, first, records) VALUES (?1, ?2, ?3);

-- name: add_run
-- Record a run, its size, and until when its last claim counts; claims count only once their run is recorded.
INSERT INTO sorted_run (number, size, until_ms) VALUES (?1, ?2, ?3);

-- name: list_runs
-- All runs, smallest first.
SELECT number, size, until_ms FROM sorted_run ORDER BY size, number;

-- name: next_run
-- A number that no run has.
SELECT coalesce(max(number), 0) + 1 FROM sorted_run;

-- name: find_claim
-- The record of a claim id in whichever run it is: in each run the one page that can have it.
SELECT found.record FROM (
    SELECT (
        SELECT CASE WHEN instr(records, ?1) > 0 THEN substr(records, instr(records, ?1), ?2) END FROM claim_page
        WHERE run = sorted_run.number AND first <= ?1 ORDER BY first DESC LIMIT 1
    ) AS record FROM sorted_run
) AS found WHERE found.record IS NOT NULL;

-- name: pages_between
-- In each run the pages that can have claim ids from one to another.
SELECT claim_page.records FROM sorted_run JOIN claim_page ON claim_page.run = sorted_run.number
WHERE claim_page.first <= ?2 AND claim_page.first >= coalesce(
    (SELECT max(page.first) FROM claim_page AS page WHERE page.run = sorted_run.number AND page.first <= ?1), ?1
) LIMIT ?3;

-- name: run_pages
-- The pages of one run.
SELECT records FROM claim_page WHERE run = ?1;

-- name: delete_run_pages
-- Delete the pages of a run that was merged or is over.
DELETE FROM claim_page WHERE run = ?1;

-- name: delete_run
-- Delete the record of a run that was merged or is over.
DELETE FROM sorted_run WHERE number = ?1;

-- name: pages_after
-- Pages of one run after the one that begins with an id.
SELECT records FROM claim_page WHERE run = ?1 AND first > ?2 ORDER BY first LIMIT ?3;

-- name: pages
-- All pages of the recorded runs.
SELECT claim_page.records FROM sorted_run JOIN claim_page ON claim_page.run = sorted_run.number;
