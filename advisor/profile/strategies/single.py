"""One process, no communication: the baseline that every strategy is compared with."""

from advisor.profile.strategies.base import Case, Job

KIND = "data"


def checks(case: Case) -> list[str]:
    """It runs on one rank, and alone."""
    problems = []
    if case.workload.world_size != 1:
        world = case.workload.world_size
        problems.append(f"strategy single and world_size {world}: single runs on one rank")
    if len(case.names) > 1:
        others = "+".join(name for name in case.names if name != "single")
        problems.append(f"strategy single and {others}: single stands alone")
    return problems


def apply(_job: Job) -> None:
    """Nothing to change."""
