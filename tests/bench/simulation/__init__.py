"""A discrete-event simulator that drives the production policies with a manual clock and seeded generators.

Arrivals, demands, balancers and keys are drawn before a run from one seed, so policies meet the same requests
(common random numbers), and differences between them are the policies' own. Times are seconds.
"""
