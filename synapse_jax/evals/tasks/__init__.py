"""Long-context tasks with exact answers, written on a model's own tokenizer."""
