"""The command-line client of a runner: an ordinary client of ``/v1``.

It imports neither Django nor the Kubernetes client, so that it starts at once.
"""
