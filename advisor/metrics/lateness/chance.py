"""How likely chance alone makes a rank as late as it is, however few the steps are."""

from advisor.statistics import Floats, binomial_tail, sign_flip_tail, t_tail

# A rank is a straggler when chance would make it last this often less than once in twenty runs.
SIGNIFICANCE = 0.05


def late_by_chance(
    values: Floats, most: Floats | None, slowest: Floats, stretches: Floats, even: float,
    members: int,
) -> float:  # fmt: skip
    """P value of a rank's lateness, corrected for the number of tests and of ranks.

    ``values``: by step what the others wait for it, ns; ``most``: the same of the next worst rank,
    None without one. By step it is the slowest in ``slowest`` of ``stretches``, of which ``even``
    (a share) would be its part; ``members`` ranks are tested.
    """
    able = SIGNIFICANCE / 2 / members
    together = count_as_one(slowest, stretches)
    trials, successes = round(stretches.sum() / together), round(slowest.sum() / together)
    # A test that no outcome can make significant corrects for nothing (Tarone 1990); of two ranks
    # in one stretch per step signs and counts would weigh the same.
    weighs = 0.5 ** len(values) < able
    tests = [1.0 if most is None else sign_flip_tail(values - most)] if weighs else []
    if even**trials < able and (not weighs or members > 2 or trials > len(values)):
        tests.append(binomial_tail(successes, trials, even))
    if not weighs and most is not None and (values > most).all():
        # Late in each of few steps: by how much, against their spread, tells what signs cannot.
        tests.append(t_tail(values - most))
    return min(1.0, members * len(tests) * min(tests)) if tests else 1.0


def count_as_one(slowest: Floats, stretches: Floats) -> float:
    """How many stretches tell as much as one alone: who lacks a core is late in all of a step.

    The spread of counts over steps, by that of independent trials (Pearson's chi squared by its
    degrees of freedom; Wedderburn 1974): 1 of those, at most all of a step.
    """
    steps, trials = len(stretches), float(stretches.sum())
    share = float(slowest.sum()) / trials if trials else 0.0
    if steps < 2 or not 0 < share < 1:
        return 1.0
    expected = share * stretches
    spread = float(((slowest - expected) ** 2 / (expected * (1 - share))).sum()) / (steps - 1)
    return min(max(spread, 1.0), trials / steps)
