"""How the admin writes times: the same on every page, to the second, with their zone."""
