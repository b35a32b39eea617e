"""Finding, loading and asking plugins."""
