"""Retention in the background: candidates, demotion between tiers, orphans, vacuum (RET-001 to RET-004)."""
