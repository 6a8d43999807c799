"""The paper: its artefacts, one file per group, and its published numbers as data."""
