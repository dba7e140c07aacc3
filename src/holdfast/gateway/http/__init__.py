"""The gateway's API over HTTP: endpoints of load-s3-agent, its read side, and resumable uploads."""
