"""What training reads, as arrays that need numpy and torch alone: texts as token ids, batches, dev sets."""
