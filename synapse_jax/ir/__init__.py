"""The Model IR: what a model computes, before any graph of it."""
