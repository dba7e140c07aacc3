"""Data structures in memory for orders, due times and unique ids; none is part of the state digest."""
