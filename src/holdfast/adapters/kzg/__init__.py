"""KZG commitments of blobs (BLB-001), in processes of their own."""
