"""Public help for stores that keep files: durable replacement, locks, names."""
