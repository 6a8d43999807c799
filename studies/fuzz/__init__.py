"""Files that are wrong in every way, given to everything that reads files: `python -m studies fuzz`."""
