"""Routes under `/v1`: bytes in and out, and many jobs in one request."""
