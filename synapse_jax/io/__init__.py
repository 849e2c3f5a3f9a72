"""Files to host data: numpy and format libraries, no jax."""
