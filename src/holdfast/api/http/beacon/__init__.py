"""Blobs as Ethereum's clients ask for them (SRV-001): the Beacon API's route, and one method of the Engine API."""
