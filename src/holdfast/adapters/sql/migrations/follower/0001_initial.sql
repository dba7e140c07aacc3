-- What a follower keeps: blocks with their leaves, and a record for each blob. No statement deletes a row.

CREATE TABLE followed_block (
    height INTEGER PRIMARY KEY,
    header BLOB NOT NULL,
    payload BLOB NOT NULL
) STRICT;

CREATE TABLE followed_blob (
    height INTEGER NOT NULL,
    number INTEGER NOT NULL,
    bytes TEXT NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (height, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX followed_blob_here ON followed_blob (height) WHERE bytes = 'here';

CREATE TABLE followed_validators (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    record BLOB NOT NULL
) STRICT;
