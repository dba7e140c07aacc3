"""Evidence is buffered, validated, stored and read again here, whichever API it arrives by (EVD-001 to EVD-009)."""
