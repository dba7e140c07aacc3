"""The bytes of a spool on disk: records, segments, markers, recovery and verification."""
