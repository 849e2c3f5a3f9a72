"""What is measured with a session: scores and their records."""
