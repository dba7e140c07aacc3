"""The store on a PostgreSQL server: one schema a network, a partitioned journal, tables written by COPY."""
