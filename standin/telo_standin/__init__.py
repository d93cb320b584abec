"""A stand-in for the Telo kernel: a test double for machines that cannot reach the real one.

It needs Python's standard library and PyYAML only, and nothing of telorunner, so that the folder
can be copied into a container image as it is.
"""
