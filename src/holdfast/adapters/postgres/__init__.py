"""The store on a PostgreSQL server: one schema per network, a partitioned journal, tables written by COPY."""
