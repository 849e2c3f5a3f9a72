"""The KV cache: a value on the device, bookkeeping on the host."""
