"""How live jobs are kept: as records or packed in memory, as columns in a snapshot."""
