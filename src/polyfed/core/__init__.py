"""What every other floor stands on.

aligned.py      arrays that CPU devices use without a copy
checks.py       a parameter's value, checked by name
errors.py       errors that a user can act on
files.py        files that are written whole or not at all
machine.py      the memory of this machine and of this process
packing.py      whole numbers of any width as bytes
precision.py    bfloat16 products with float32 weights
randomness.py   keys from (seed, round, client, purpose), shuffles and coins
schedules.py    values that change as a run goes on
startup.py      what a process sets up before JAX computes anything
trees.py        arithmetic on parameter trees
"""
