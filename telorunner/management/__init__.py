"""Management commands of the runner."""
