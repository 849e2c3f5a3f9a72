"""From IR to compiled graphs: the only code that traces or compiles."""
