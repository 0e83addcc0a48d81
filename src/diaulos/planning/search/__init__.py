"""The exact search: what it searches, how it judges stages, and how it picks a plan.

`stage_costs` prices every possible stage, `covering` covers all layers with stages below a
threshold, and `steady` and `flush` move the threshold until no plan is faster; `ties` picks.
"""
