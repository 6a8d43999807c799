"""Tables larger than memory: what training and scoring take in memory and time. One module for each part."""
