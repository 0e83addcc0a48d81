"""A plan on torch.distributed."""
