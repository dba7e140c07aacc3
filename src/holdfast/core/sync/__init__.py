"""What one node believes of another's blocks (SYN-001, SYN-002): packages, and the checks before anything is stored.

A follower folds no jobs. It keeps signed headers, leaves, metadata and bytes of blobs, and notices. Read: package,
check_package, followed.
"""
