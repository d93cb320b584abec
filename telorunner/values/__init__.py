"""Parsing, comparing and normalising of values; pure."""
