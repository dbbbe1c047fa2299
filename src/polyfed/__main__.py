"""`python -m polyfed`."""

from polyfed.cli.main import main

main()
