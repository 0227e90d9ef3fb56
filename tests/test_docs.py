"""Every command in the README and the docs runs, or says why it cannot here."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import Done, advisor

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- (?P<note>[^>]*?) -->\n)?```(?P<language>sh|python)\n(?P<body>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


def blocks() -> list[tuple[str, str, str, int]]:
    found = []
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")), 1):
            note = match["note"] or ""
            if note.startswith("not run:"):
                assert len(note) > len("not run: "), f"{page}: say why it is not run"
                continue
            status = int(note.removeprefix("status:")) if note.startswith("status:") else 0
            name = f"{page.relative_to(ROOT)}#{number}"
            found.append((name, match["language"], match["body"], status))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "body", "status"),
    [pytest.param(*block[1:], id=block[0]) for block in blocks()],
)
def test_block_runs(language: str, body: str, status: int, tmp_path: Path) -> None:
    """Our commands in this process, which has imported and read what most of them need."""
    for name in ("fixtures", "workloads", "rules"):
        (tmp_path / name).symlink_to(ROOT / name)
    lines = body.splitlines() if language == "sh" else [body]
    for line in lines:
        done: Done | subprocess.CompletedProcess[str]
        if line.startswith("advisor "):
            done = advisor(*shlex.split(line)[1:], cwd=tmp_path)
        else:
            program = ["bash", "-euc"] if language == "sh" else [sys.executable, "-c"]
            done = subprocess.run(
                [*program, line],
                cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
        expected = status if line == lines[-1] else 0
        assert done.returncode == expected, done.stdout[-2000:] + done.stderr[-2000:]
        assert "Traceback" not in done.stderr


def test_all_pages_can_be_followed_in_one_folder() -> None:
    """No command overwrites what another wrote, so two of one name would end with status 2."""
    written: dict[str, str] = {}
    for name, language, body, _ in blocks():
        if language != "sh":
            continue
        for path in re.findall(r"(?:--store|--output|-o)[ =](\S+)", body):
            assert path not in written, f"{name} and {written[path]} both write {path}"
            written[path] = name
    assert len(written) > 2


@pytest.mark.slow
def test_the_terminal_output_in_the_readme_is_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["pytest", "-m", ""])
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(
        r"```sh\nadvisor (diagnose fixtures/\S+)\n```\n+```text\n(.*?)```", text, re.S
    )
    assert match
    done = advisor(*match[1].split(), "--quiet", cwd=ROOT)
    assert done.stdout.strip() == match[2].strip()
