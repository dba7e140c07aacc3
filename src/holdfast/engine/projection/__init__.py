"""The tables behind the journal: who writes them, in which process, how far they are, what memory keeps until then."""
