"""The public description of /v1: shapes of answers, errors, events and terminal messages.

Only shapes and words: nothing here decides, and nothing reads a session. Request bodies describe
themselves (`sessions.requests`); `telorunner.openapi` puts the document together.
"""
