"""Settings: what there is to set, and where values come from."""
