"""Third-party encoders, from a folder or the Hugging Face Hub: token ids or texts to weights and vectors."""
