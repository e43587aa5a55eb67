"""`python -m sparkops`."""

from sparkops.cli.main import main

main()
