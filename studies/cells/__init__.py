"""Wrong cells, their repair, missing values, and strange rows among missing values: ours beside others."""
