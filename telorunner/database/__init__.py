"""The one database: its settings, and the one way to it."""
