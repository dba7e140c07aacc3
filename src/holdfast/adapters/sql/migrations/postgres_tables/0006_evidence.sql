-- Evidence: dead letters, receivers of the older stream.
SELECT 1;
