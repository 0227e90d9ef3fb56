"""What to put in the place of a capital in code to type: said by a comment behind its line."""

import re

PLACEHOLDERS = {
    " NEW": "NEW = a recording after the change",
    " PID": "PID = the rank's process: pgrep -f train.py",
    " IFACE": "IFACE = the NIC of the job: ip -br link",
    " OUTPUTS": "OUTPUTS = what the benchmarks print",
    " OUTPUT": "OUTPUT = what the benchmark prints",
    " COMMAND": "COMMAND = the job's own",
    " PATH": "PATH = these recordings",
    "num_workers=N": "N = cores per rank",
    "--nproc-per-node N": "N = devices per host",
    "--nproc N": "N = devices per host",
    "--nnodes N": "N = hosts",
    "--node-rank I": "I = 0 on host0, 1 on the next, …",
}
"""What to put in the place of a capital in code to type."""


def hinted(code: str) -> str:
    """``code`` with a comment behind each line that holds a placeholder."""
    return "\n".join(map(_hinted, code.split("\n")))


def _hinted(line: str) -> str:
    found = [words for name, words in PLACEHOLDERS.items() if re.search(rf"{name}\b", line)]
    return f"{line}  # {', '.join(found)}" if found and "#" not in line else line
