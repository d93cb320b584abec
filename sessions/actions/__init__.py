"""What views, consumers, the admin and commands may ask for.

An action decides and records a wish; the engine that owns a session does the rest.
"""
