"""Pure data about models and runs, frozen, without jax."""
