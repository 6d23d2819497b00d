"""`python -m pointsman` is the command `pointsman`."""

from pointsman.router.cli.main import main

main()
