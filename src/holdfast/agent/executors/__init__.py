"""What does the work of a lease: the plug-in contract, the built-in executors, the registry, and how they are run."""
