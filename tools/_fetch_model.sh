# Sourced after _setup.sh: fetches the model of the demo and the tests once, into the user's cache.
synapse inspect >/dev/null
