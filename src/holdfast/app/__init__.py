"""Where concrete things meet: a node and an agent, each built from its settings."""
