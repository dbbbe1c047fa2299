"""`python -m polyfed`."""

from polyfed.cli import main

main()
