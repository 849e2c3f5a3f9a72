"""Sessions: the only code that holds state."""
