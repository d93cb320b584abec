"""Sessions: what runs, what its clients read, and who owns it."""
