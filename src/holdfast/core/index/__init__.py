"""Data structures in memory for orders, due times, unique ids and counts; none is part of the state digest."""
