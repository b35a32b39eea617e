"""Measuring a memory on published data sets, which the user provides."""
