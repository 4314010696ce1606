"""The kinds of models that come with Vizsla's training, one file each."""
