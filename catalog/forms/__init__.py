"""The forms of the admin, a module for each kind of entry.

They say what is wrong in words for the person at the form; what may be done is decided by
`catalog.actions`, which the forms ask while the view's transaction is open.
"""
