"""Main effects and interactions of the settings, from a regression over the trials (scikit-learn).

Ridge regression on one-hot settings and their pairs, in logs of cost, judged by its error on trials
left out. With fewer trials than it takes to judge it, there is no surrogate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.config.sweep import Configuration
from advisor.errors import AdvisorError
from advisor.tune.search import Tried

_FEWEST_TRIALS = 6


@dataclass(frozen=True)
class Effect:
    """Change of the step against the mean configuration: 0.05 = 5 % slower."""

    setting: str
    value: str
    share: float
    trials: int


@dataclass(frozen=True)
class Surrogate:
    """Effects, the strongest pairs, and the error on left-out trials (median, share of cost)."""

    effects: list[Effect]
    interactions: list[tuple[str, str, float]] = field(default_factory=list)
    out_of_sample_error: float = 0.0
    trials: int = 0


def fit(tried: Sequence[Tried], start: Configuration) -> Surrogate | None:
    """Fit the surrogate; None with fewer than six usable trials. Needs the [tune] extra."""
    usable = [Tried(start, 1.0), *(item for item in tried if item.ratio is not None)]
    if len(usable) < _FEWEST_TRIALS:
        return None
    try:
        from sklearn.linear_model import RidgeCV
        from sklearn.model_selection import LeaveOneOut, cross_val_predict
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import PolynomialFeatures
    except ImportError as error:
        raise AdvisorError(
            "scikit-learn is not installed", hint="pip install 'nccl-advisor[tune]'"
        ) from error
    names = sorted({(k, repr(v)) for item in usable for k, v in item.configuration.items()})
    varied = [k for k in start if len({v for n, v in names if n == k}) > 1]
    columns = [(k, v) for k, v in names if k in varied]
    if not columns:
        return None
    design = np.array(
        [[float(repr(item.configuration[k]) == v) for k, v in columns] for item in usable]
    )
    target = np.log([item.ratio or 1.0 for item in usable])
    alphas = np.logspace(-3, 2, 11)
    model = make_pipeline(
        PolynomialFeatures(2, interaction_only=True, include_bias=False), RidgeCV(alphas)
    )
    guessed = cross_val_predict(model, design, target, cv=LeaveOneOut())
    model.fit(design, target)
    return Surrogate(
        effects=_main_effects(model, design, columns),
        interactions=_interactions(model, design, columns),
        out_of_sample_error=float(np.median(np.abs(np.expm1(guessed - target)))),
        trials=len(usable),
    )


def _main_effects(
    model: object, design: np.ndarray, columns: list[tuple[str, str]]
) -> list[Effect]:
    """Partial dependence: every trial's other settings kept, this one set to each value."""
    predict = model.predict  # type: ignore[attr-defined]
    mean = float(np.mean(predict(design)))
    effects = []
    for index, (setting, value) in enumerate(columns):
        changed = design.copy()
        same = [i for i, (name, _) in enumerate(columns) if name == setting]
        changed[:, same] = 0.0
        changed[:, index] = 1.0
        share = float(np.expm1(np.mean(predict(changed)) - mean))
        effects.append(Effect(setting, value, share, int(design[:, index].sum())))
    return effects


def _interactions(
    model: object, design: np.ndarray, columns: list[tuple[str, str]]
) -> list[tuple[str, str, float]]:
    """The strongest pairs of which all four combinations were tried: both, each alone, neither.

    Otherwise a pair's share cannot be told from the effects of the two.
    """
    features = model[0]  # type: ignore[index]
    weights = model[1].coef_  # type: ignore[index]
    pairs = []
    for powers, weight in zip(features.powers_, weights, strict=True):
        chosen = np.flatnonzero(powers)
        if len(chosen) != 2 or columns[chosen[0]][0] == columns[chosen[1]][0]:
            continue
        if len(np.unique(design[:, chosen], axis=0)) == 4:
            left, right = (f"{columns[i][0]}={columns[i][1]}" for i in chosen)
            pairs.append((left, right, float(np.expm1(weight))))
    pairs.sort(key=lambda pair: -abs(pair[2]))
    return pairs[:5]
