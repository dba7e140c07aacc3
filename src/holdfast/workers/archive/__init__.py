"""The hand-off of bytes to an archive: packed into blobs, uploaded, verified, then deleted here."""
