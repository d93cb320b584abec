"""A small Kubernetes cluster on loopback for development, the demo and tests. It is no sandbox.

It speaks the API that the product uses of a real cluster, and runs pods as processes of this user.
`cluster` runs it, `launch` has it run beside a runner, which loads nothing of the former for that.
"""
