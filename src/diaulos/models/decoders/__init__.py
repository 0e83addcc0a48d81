"""Decoder-only transformers by closed form, from a `config.json` or from sizes."""
