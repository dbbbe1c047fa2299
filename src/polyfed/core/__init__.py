"""What every other floor stands on.

above.py        what stands on a floor above, found by name when it is asked for
aligned.py      arrays that CPU devices use without a copy
checks.py       a parameter's value, checked by name
errors.py       errors that a user can act on
files.py        files that are written whole or not at all
html.py         small pieces of HTML for notebooks
lock.py         one process at a time in a folder
machine.py      the memory of this machine and of this process
packing.py      whole numbers of any width as bytes
precision.py    bfloat16 products with float32 weights
randomness.py   keys from (seed, round, client, purpose), shuffles and coins
schedules.py    values that change as a run goes on
startup.py      what a process sets up before JAX computes anything
trees.py        arithmetic on parameter trees
worker.py       which process this is, where several run one simulation
"""
