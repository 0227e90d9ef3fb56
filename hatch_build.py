"""Builds the scanner of traces (plain C, no Python.h) and compiles the shipped YAML to JSON.

Without a C compiler the package installs all the same: the parser in Python then does all the
work. Without the JSON each file is parsed when it is first read, and kept in the user's cache.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("advisor/ingest/readers/kineto/native")
PARSED = Path("advisor/config/parsed.py")
YAML = ("rules", "workloads", "advisor")
FLAGS = ("-std=c11", "-O3", "-shared", "-fPIC")


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds ``_scan.so`` to wheels and beside the sources of editable installations.

    Wheels also get ``data/yaml.json``; an editable installation reads files that may change.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile both; ``ADVISOR_NATIVE=0`` leaves the scanner out."""
        if version != "editable":
            self._compile_yaml(build_data)
        folder = Path(self.root) / FOLDER
        library = folder / "_scan.so"
        if os.environ.get("ADVISOR_NATIVE") == "0" or not self._compiled(folder, library):
            library.unlink(missing_ok=True)
            return
        build_data["artifacts"].append(str(FOLDER / library.name))
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def _compile_yaml(self, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        # By its path: the package itself is not importable here.
        spec = importlib.util.spec_from_file_location("parsed", root / PARSED)
        assert spec is not None and spec.loader is not None
        parsed = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(parsed)
        files = sorted(path for folder in YAML for path in (root / folder).rglob("*.yaml"))
        place = root / "build" / parsed.COMPILED
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(parsed.compiled(files), encoding="ascii")
        build_data["force_include"][str(place)] = f"advisor/data/{parsed.COMPILED}"

    def _compiled(self, folder: Path, library: Path) -> bool:
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if shutil.which(compiler[0]) is None:
            self.app.display_warning(f"{compiler[0]} not found: traces will be read more slowly")
            return False
        partial = library.with_suffix(f".{os.getpid()}")
        command = [*compiler, *FLAGS, "-o", str(partial), str(folder / "scan.c")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(f"{shlex.join(command)} failed:\n{done.stderr[-2000:]}")
            return False
        partial.replace(library)  # a running process keeps the file it has loaded
        return True
