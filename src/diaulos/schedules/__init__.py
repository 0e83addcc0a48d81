"""Action lists per rank: generated, checked, simulated.

A `schedule` is a list of `actions` per rank. `generators` makes it from a pipeline's `shape`
(`generation`), `check` proves it (`checking`, `causality`), and `simulate` times it with `costs`:
a `timeline`, which `analysis` reads. `plans` does so for a plan. `order_search` looks for better
orders of a batch, `judging` for better plans.
"""
