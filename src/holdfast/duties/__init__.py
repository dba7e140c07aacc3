"""Who works when: a duty is a name, a wake-up and a bounded piece of work; it decides nothing."""
