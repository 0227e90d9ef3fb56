"""Python imports this before any script while its folder is on PYTHONPATH: it waits for torch.

Only the standard library is used here: every Python that the command starts runs this, also those
that never train. The sitecustomize that this one hides is run first.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_ME = sys.modules[__name__]


def _run_hidden() -> None:
    """The environment's own sitecustomize, which Python would have run without this folder."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    sys.modules.pop(__name__, None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault(__name__, _ME)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls the hook once torch, or a module that it has to change, has been imported."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.waiting = {"torch"}

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own spec, with a loader that reports when it is done."""
        if fullname not in self.waiting:
            return None
        self.waiting.discard(fullname)
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self.imported(fullname, module)

        vars(spec.loader)["exec_module"] = exec_module
        return spec

    def imported(self, name: str, module: ModuleType) -> None:
        """torch brings the hook, which names the other modules that it waits for."""
        if name == "torch":
            spec = importlib.util.find_spec("advisor")
            if spec is None:
                sys.path.append(self.root)
            elif os.path.dirname(os.path.dirname(os.path.abspath(str(spec.origin)))) != self.root:
                print(f"advisor: {spec.origin} hides it: nothing is recorded", file=sys.stderr)
                return
        from advisor.profile.hook import begin

        self.waiting |= begin.after_import(name, module) - set(sys.modules)


_run_hidden()
if os.environ.get("PYTHON_ADVISOR_HOOK"):
    _ORDER = json.loads(bytes.fromhex(os.environ["PYTHON_ADVISOR_HOOK"]))
    os.environ.update({**_ORDER["ours"], **_ORDER["variables"]})
    sys.meta_path.insert(0, _AfterImport(_ORDER["root"]))
