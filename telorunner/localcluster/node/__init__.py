"""The local cluster's node: it runs the containers of pods as processes of this machine.

It is no sandbox. A container sees the machine's files and runs as the user that started the
cluster; `securityContext` is reported and otherwise without effect.
"""
