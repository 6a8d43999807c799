"""What `fit` and `train` do with rows when nothing else is asked for: one recipe for tables, one for images."""
