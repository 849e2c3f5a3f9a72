"""The pass-key diagnostic: a number in a long text of filler, and the question what it was."""
