"""Small decoders: their data, their training, their files."""
