"""What the papers' experiments share.

experiment   Claim, Outcome, Experiment, and the decorator that registers one
folder       what a reproduction writes: figure, data, claims, page
run_cache    finished runs, in memory and on disk, so that a stopped reproduction goes on
style        the house style of figures
convex_runs  logistic regression against its exact solution (FLIX, Scafflix)
held_out     runs that are judged on held-out rows
tuned        hyper-parameters by validation rows, with as many candidates for every method
comparison   methods side by side, each tuned, with every seed
"""
