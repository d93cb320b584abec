"""Measurements of the product, each as a ratio to a baseline taken in the same run.

`make bench` runs them (`bench.__main__`). Nothing of the product imports this.
"""
