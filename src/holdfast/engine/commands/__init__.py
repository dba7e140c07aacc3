"""How commands wait and are decided: inbox (by caller, in runs), decisions (every turn of the event loop)."""
