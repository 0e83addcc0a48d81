"""Step time and memory of one given configuration of a model on a cluster."""
