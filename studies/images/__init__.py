"""Named sets of images: where they are, how they are read and downloaded, and contamination for them."""
