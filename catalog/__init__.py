"""The catalog operators curate: apps, terms and base images."""
