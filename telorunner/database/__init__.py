"""The one database: its settings, and the way to it."""
