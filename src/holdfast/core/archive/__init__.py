"""The hand-off of blobs to an archive (ARC-001 … PRU-002): intent, upload, signed notice, record, deletion of bytes.

Core decides when an upload is due, whether a notice counts, and when bytes may go; workers upload, read back and
delete. Read: notice, messages, check_notice, decide, apply.
"""
