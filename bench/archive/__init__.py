"""The archive: blobs, uploads, notices, and how long others wait meanwhile."""
