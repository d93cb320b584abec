"""Public hosts of sessions, as values in and manifests out."""
