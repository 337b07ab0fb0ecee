"""`python -m rlbench` is the command `rlbench`"""
from rlbench.launch.cli import main

raise SystemExit(main())
