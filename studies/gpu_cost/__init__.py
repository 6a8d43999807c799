"""What the paper's image experiments cost, counted on a network of their size; see `python -m studies gpu-cost`."""
