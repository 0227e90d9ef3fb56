"""What the tool says of every stored recording, kept beside the code, so that a change shows.

    python -m benchmarks.pin            compare with benchmarks/pins/; 1 where anything differs
    python -m benchmarks.pin --write    take today's as the new ones (a commit says why)

A pin is the text report and the findings, without their SQL, of one folder under fixtures/ (or of
the paths given). A pure move of code changes no pin; a change of judgement or of words changes
those that it means to, which the commit then shows line by line. Numbers are kept to nine digits:
the last ones follow the processor, whose vector units add in another order.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "benchmarks" / "pins"
_WIDTH = "100"


def stored() -> list[Path]:
    """Every recording of the repository, as a path from its root."""
    return sorted(p.relative_to(ROOT) for p in (ROOT / "fixtures").iterdir() if p.is_dir())


def pin(recording: Path) -> str:
    """The findings and the text report of one recording. An error of the command is its text."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "advisor", "diagnose", str(recording), "--verbose"]
        result = subprocess.run(
            [*command, "--format", "text,json", "--quiet", "-o", folder],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=os.environ | {"COLUMNS": _WIDTH, "PYTHONPATH": str(ROOT)},
        )
        if result.returncode:
            return f"exit {result.returncode}\n{result.stderr.replace(folder, 'OUT')}"
        (findings,) = Path(folder).glob("*.json")
        report: dict[str, Any] = json.loads(findings.read_text(), parse_float=_rounded)
    told = json.dumps(_stable(report), indent=1, sort_keys=True, ensure_ascii=False)
    return f"{result.stdout.replace(folder, 'OUT')}\n{told}\n"


def _rounded(number: str) -> float:
    return float(f"{float(number):.9g}")


def _stable(report: dict[str, Any]) -> dict[str, Any]:
    """Without what a move of code may change (the queries' text, the version, the command)."""
    for name in ("advisor_version", "command"):
        report.pop(name, None)
    for finding in report["findings"]:
        finding["evidence"].pop("sql", None)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="recordings; default: fixtures/*")
    parser.add_argument("--write", action="store_true", help="take today's output as the pins")
    arguments = parser.parse_args()
    recordings = arguments.paths or stored()
    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(pin, recordings))
    differ = 0
    for recording, text in zip(recordings, texts, strict=True):
        path = PINS / f"{recording.name}.txt"
        before = path.read_text() if path.exists() else ""
        if text == before:
            continue
        differ += 1
        lines = difflib.unified_diff(
            before.splitlines(), text.splitlines(), f"pinned {recording}", "now", lineterm="", n=1
        )
        sys.stdout.writelines(f"{line}\n" for line in lines)
        if arguments.write:
            PINS.mkdir(exist_ok=True)
            path.write_text(text)
    verb = "written" if arguments.write else "differ"
    print(f"{len(recordings)} recordings, {differ} {verb}")
    return int(bool(differ) and not arguments.write)


if __name__ == "__main__":
    sys.exit(main())
