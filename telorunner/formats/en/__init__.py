"""In English, the admin's one language."""
