"""The journal beyond the store: archive segments, trim, export and import, check, rebuild, replay and audit."""
