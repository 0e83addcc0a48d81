"""Any module as layers that can be trained in stages: a sequence of modules, or a module cut up."""
