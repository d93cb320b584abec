"""The runner's Kubernetes client: the only package that imports `kubernetes`."""
