-- Results: consumption, tiers, retention.
SELECT 1;
