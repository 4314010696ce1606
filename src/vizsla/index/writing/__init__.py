"""Documents in: analysed, buffered, written as segments, committed."""
