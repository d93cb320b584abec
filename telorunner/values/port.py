"""Ports of the Internet's transports; pure."""

# A port is 16 bits, and 0 is none.
MAX_PORT = 65_535
