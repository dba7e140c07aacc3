"""What anybody can check offline with the proposer's key: headers and proofs (CHN-001, RES-008)."""
