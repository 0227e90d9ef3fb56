"""The wheel in an empty environment: core without torch diagnoses, rules and workloads inside."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import advisor

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    pytest.importorskip("build", reason="needs the [dev] extra")
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_citation_names_the_version_of_the_package() -> None:
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {advisor.__version__}" in cited


def test_wheel_and_sdist_hold_what_they_must(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert len(list(built.glob("*.tar.gz"))) == 1
    names = zipfile.ZipFile(wheel).namelist()
    scanner = "advisor/ingest/readers/kineto/native/_scan.so"
    assert (scanner in names) == (shutil.which("cc") is not None)
    for needed in (
        "advisor/data/rules/exposed-communication.yaml",
        "advisor/data/workloads/gpt2.yaml",
        "advisor/data/yaml.json",
        "advisor/store/schema.sql",
        "advisor/py.typed",
    ):
        assert needed in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


@pytest.mark.slow
def test_the_wheel_alone_diagnoses_a_recording(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "-c", constraints, wheel],
        check=True,
        timeout=600,
    )
    assert subprocess.run([python, "-c", "import torch"], capture_output=True).returncode != 0  # noqa: PLW1510
    done = subprocess.run(
        [
            environment / "bin" / "advisor",
            "diagnose",
            ROOT / "fixtures" / "gpt2-tiny-ddp-2-slow-rank",
            "--format",
            "text,html,json",
            "-o",
            tmp_path / "out",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "VERDICT" in done.stdout
    assert (tmp_path / "out" / "report.html").stat().st_size > 5_000
