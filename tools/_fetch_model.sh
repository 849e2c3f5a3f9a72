# Sourced after _setup.sh: fetches the model of the demo and the tests once, into the user's cache.
python -c 'from synapse_jax.io.catalog import resolve_model; resolve_model("smollm2-135m-instruct")'
