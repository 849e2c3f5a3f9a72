# Sourced after _setup.sh: fetches the model of the demo and the tests once, into the user's cache.
synapse models --fetch smollm2-135m-instruct >/dev/null
