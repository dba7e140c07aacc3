"""The queue as SQL that one would write for the purpose: the simple one, and one that makes the same promises."""
