"""What to record next time, as commands of the tool that made this recording."""

from advisor.engine.sandbox import Sandbox
from advisor.messages import STEPS as SENTENCES
from advisor.messages import say
from advisor.vocabulary.recorded_steps import STEPS

_BY_ITSELF = {"vLLM": "record-vllm", "SGLang": "record-sglang"}
"""Engines whose servers record themselves, every rank (docs/capture-jobs.md)."""


def more_steps(sandbox: Sandbox) -> list[str]:
    """How to record as many steps as a diagnosis needs."""
    if _by_nsys(sandbox):
        is_torch = sandbox.holds("facts", "is_torch", {})
        return [say(SENTENCES, "nvtx-steps", {"steps": STEPS, "is_torch": is_torch})]
    if _by_profile(sandbox):
        return [say(SENTENCES, "profile-again", {"steps": STEPS})]
    if _of_inference(sandbox):
        return [say(SENTENCES, "record-inference", {"steps": STEPS})]
    return [say(SENTENCES, "record", {"steps": STEPS, "missing": False})]


def all_ranks(sandbox: Sandbox, *, missing: bool = False) -> list[str]:
    """How to record every rank over the same steps; of ``missing`` ones there may be files."""
    if _by_nsys(sandbox):
        return [say(SENTENCES, "nsys", {}), say(SENTENCES, "nsys-export", {})]
    (row,) = sandbox.records(
        "SELECT max(engine) AS engine FROM rank_content WHERE purpose = 'inference'"
    )
    code = _BY_ITSELF.get(row["engine"], "record")
    return [say(SENTENCES, code, {"steps": 0, "missing": missing})]


def groups(sandbox: Sandbox) -> list[str]:
    """How to record which process group a call belongs to."""
    if _by_nsys(sandbox):
        return [say(SENTENCES, "nsys-export", {})]
    return all_ranks(sandbox)


def _by_profile(sandbox: Sandbox) -> bool:
    """Whether a workload file was run, so that there is no script to name."""
    (row,) = sandbox.records(
        "SELECT coalesce(bool_or(workload IS NOT NULL), false) AS known FROM run"
    )
    return bool(row["known"])


def _of_inference(sandbox: Sandbox) -> bool:
    """Whether nothing in it ends a training step, which is what the recorder goes by."""
    return sandbox.holds("facts", "purpose IN ('inference', 'forward')", {})


def _by_nsys(sandbox: Sandbox) -> bool:
    return "nsys" in sandbox.formats and "kineto" not in sandbox.formats
