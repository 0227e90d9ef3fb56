"""What a rule lacks, and whether any recording of the job could hold it."""

from collections.abc import Mapping
from typing import Any

from advisor.engine.catalogue import recipes
from advisor.engine.facts import Facts
from advisor.engine.rule import Need
from advisor.engine.sandbox import Sandbox
from advisor.findings import Outcome, OutcomeKind

_ON_A_CPU = (
    "SELECT count(*) > 0 AND bool_and(contains(backend, 'gloo') AND NOT contains(backend, 'nccl')) "
    "AND bool_and(timeline = 'host') FROM rank"
)
_OF_GPUS = ("device-trace", "nccl-log", "nccl-tests", "memory")
"""Recipes for evidence that only jobs on GPUs have."""


def what_is_missing(
    need: Need, sandbox: Sandbox, facts: Facts, values: Mapping[str, Any]
) -> str | None:
    """What is missing, in words, or None when the evidence is there."""
    if need.table is not None:
        found = sandbox.holds(need.table, need.where, values)
        return None if found else need.missing or f"nothing in table '{need.table}'"
    if need.ranks is not None and facts.ranks_read < need.ranks:
        return need.missing or (
            f"needs the traces of {need.ranks} ranks or more; {facts.ranks_read} given"
        )
    if need.all_ranks and not facts.all_ranks:
        world = facts.world_size if facts.world_size is not None else "an unknown number of"
        return need.missing or f"needs the traces of all ranks; {facts.ranks_read} of {world} given"
    if need.steps is not None and facts.steps < need.steps:
        return need.missing or (
            f"needs {need.steps} complete step{'s' if need.steps > 1 else ''} after the warm-up; "
            f"{facts.steps} found"
        )
    if need.timeline is not None and facts.timeline != need.timeline:
        wanted = "GPU activity" if need.timeline == "device" else "a CPU-only recording"
        return need.missing or f"needs {wanted}, which the recording does not hold"
    return None


def not_applicable(
    rule_id: str, need: Need, missing: str, sandbox: Sandbox, facts: Facts
) -> Outcome:
    """The outcome of a rule without its evidence, with how to record it by the tool that was used.

    Nothing is to be recorded where the job itself has nothing of the kind.
    """
    of_job = _is_not_in_the_job(need, sandbox, facts)
    recipe = None if of_job else recipes().get(need.capture)
    return Outcome(
        run=sandbox.run,
        rule=rule_id,
        outcome=OutcomeKind.NOT_APPLICABLE,
        reason=missing,
        how_to_capture=" ".join(recipe.for_formats(sandbox.formats).split()) if recipe else "",
        lacks=recipe.title if recipe else "",
        not_in_the_job=of_job,
    )


def _is_not_in_the_job(need: Need, sandbox: Sandbox, facts: Facts) -> bool:
    """Whether the recording shows that no other recording of this job would hold it."""
    whole = facts.all_ranks and (need.table is not None or facts.world_size == 1)
    if need.capture == "all-ranks" and whole:
        return True
    if need.capture in _OF_GPUS and sandbox.select(_ON_A_CPU, {})[1] == [(True,)]:
        return True
    settled = need.settled_by and sandbox.select(f"SELECT {need.settled_by}", {})[1]
    return settled == [(True,)]
