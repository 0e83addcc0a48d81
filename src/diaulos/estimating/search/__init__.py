"""The best configurations of a model on a cluster, found by looking at few of them closely."""
