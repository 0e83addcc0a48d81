"""Plans, their evaluation, and the planners.

`plan` says what a plan is, `evaluation` what it costs, `problem` what is asked of a planner, and
`files` how a plan is written down. `exact` finds the best one with `search`, on graphs made smaller
by `merging`; `baselines` are what it is held against. `planners` calls them by name,
`explanation` says why an answer is what it is, and `local_search` varies plans for a simulation.
"""
