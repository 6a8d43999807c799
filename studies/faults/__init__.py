"""Faults on purpose, while something small trains and after it: `python -m studies faults`."""
