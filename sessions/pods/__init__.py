"""Pods: manifests from frozen specs, and what a pod's status means in words; pure."""
