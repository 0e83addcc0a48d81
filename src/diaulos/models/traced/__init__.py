"""The operations of any model of transformers, seen by running it on torch's meta device."""
