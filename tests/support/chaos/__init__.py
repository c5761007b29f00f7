"""Jobs and requests under fire. `make chaos` runs the long form and prints what was
lost: nothing.

`field` has the processes and what can befall them, `random_faults` lets it befall jobs
at random, and `scenarios` are single faults at the worst moment. After each, what is
stored is examined as `lometab doctor --deep` does it.
"""
