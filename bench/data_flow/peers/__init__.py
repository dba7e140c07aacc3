"""Jobs that do nothing and whose result is stored, by the queues that people use: a module each."""
