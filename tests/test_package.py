"""The wheel in an empty environment: core without torch diagnoses, rules and workloads inside."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


@pytest.mark.slow
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
    venv.create(environment)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "-c", ROOT / "constraints.txt", wheel], check=True, timeout=600)
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


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["cc", "no-such-compiler"])
def test_a_wheel_comes_out_bit_for_bit_alike_with_a_compiler_and_without(
    compiler: str, tmp_path: Path
) -> None:
    """Built in two folders; without a compiler it is for any platform, and lacks the scanner."""
    if compiler == "cc" and shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    parts = ("advisor", "rules", "workloads", "pyproject.toml", "hatch_build.py", "README.md")
    made = []
    for number in range(2):
        folder = tmp_path / f"copy{number}" / ("deeper" * number)
        folder.mkdir(parents=True)
        for part in (*parts, "LICENSE"):
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
            copy(ROOT / part, folder / part)
        for scanner in folder.rglob("_scan*.so"):
            scanner.unlink()
        out = tmp_path / f"out{number}"
        subprocess.run(
            [sys.executable, "-m", "build", "-w", "--no-isolation", "--outdir", out, folder],
            check=True,
            capture_output=True,
            timeout=300,
            env={**os.environ, "CC": compiler, "SOURCE_DATE_EPOCH": "1700000000"},
        )
        made += out.glob("*.whl")
    one, other = made
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert any(name.endswith("_scan.so") for name in names) == (compiler == "cc")
    assert one.name.endswith("py3-none-any.whl") == (compiler != "cc")


def test_what_is_installed_and_what_builds_has_a_pin() -> None:
    """GIVEN constraints.txt THEN no requirement but those of DeepSpeed's extra is left open."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    pins = {canonicalize_name(name): pin for name, pin in (line.split("==") for line in lines)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    asked = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(line for extra, lines in extras.items() if extra != "deepspeed" for line in lines),
        "editables~=0.3",  # hatchling's, for an editable installation
    ]
    for requirement in map(Requirement, asked):
        if requirement.name != "nccl-advisor":
            assert pins[canonicalize_name(requirement.name)] in requirement.specifier


@pytest.mark.parametrize("name", ["ci", "release"])
def test_what_builds_and_checks_uses_nothing_that_can_change(name: str) -> None:
    """Actions by commit, tools by version."""
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
    uses = re.findall(r"uses: (\S+)", text)
    assert len(uses) > 5
    for used in uses:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}|\./\.github/workflows/ci\.yml", used), (
            used
        )
    for tool in re.findall(r"python -m pip install (?!dist/)([a-z].*)", text):
        assert all("==" in word for word in tool.split()), tool


def test_only_the_job_that_publishes_may_write() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    before, publish = text.split("  publish:")
    assert "write" not in before.split("permissions:")[1].split("jobs:")[0]
    assert re.findall(r"(\S+): write", publish) == ["contents", "id-token"]
    assert re.findall(r"(\S+): write", before) == []
