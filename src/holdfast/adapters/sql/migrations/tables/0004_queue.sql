-- Providers, leases and jobs: what matching and slashing keep.
SELECT 1;
