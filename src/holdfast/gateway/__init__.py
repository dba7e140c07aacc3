"""A server that speaks the API of load-s3-agent over any object store, alone or beside a node (ARC-004)."""
