"""The bytes of blobs on the disk of a node."""
