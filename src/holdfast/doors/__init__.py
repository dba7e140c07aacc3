"""How one speaks to a node: answers (one table for every protocol), shapes (JSON in and out), methods, local."""
