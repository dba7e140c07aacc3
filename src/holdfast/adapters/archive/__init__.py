"""Where archived items are stored (ARC-004): a folder, an S3-compatible store, an agent that speaks load-s3."""
