"""Where training data come from: crops, judged and generated queries, a teacher; as batches and dev sets."""
