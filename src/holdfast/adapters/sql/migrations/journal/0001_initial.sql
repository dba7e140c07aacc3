-- The journal: packed, hash-chained batches, and beside them the payloads too large for a batch.
CREATE TABLE batch (
    number      INTEGER PRIMARY KEY,
    term        INTEGER NOT NULL,
    first_event INTEGER NOT NULL,
    last_event  INTEGER NOT NULL,
    time_ms     INTEGER NOT NULL,
    parent      BLOB    NOT NULL,
    hash        BLOB    NOT NULL,
    body        BLOB    NOT NULL
) STRICT;
CREATE INDEX batch_by_event ON batch (last_event);

CREATE TABLE attachment (
    batch  INTEGER NOT NULL REFERENCES batch (number),
    digest BLOB    NOT NULL,
    raw    BLOB    NOT NULL,
    PRIMARY KEY (batch, digest)
) STRICT;
