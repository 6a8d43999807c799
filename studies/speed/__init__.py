"""Speed beside other libraries: updates, sampler, time to quality, growth, processes."""
