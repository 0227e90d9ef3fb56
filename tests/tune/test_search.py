"""The search against exhaustible grids with a known best point."""

from __future__ import annotations

import pytest

from advisor.config.combinations import grid
from advisor.config.sweep import Axis, Configuration
from advisor.tune.points import key_of
from advisor.tune.search import Predicted, Search, Tried, default_limit
from advisor.tune.surrogate import fit

AXES = [
    Axis(setting="bucket_cap_mb", values=[0.5, 1, 2, 5, 10, 25, 50, 100]),
    Axis(setting="gradient_as_bucket_view", values=[False, True]),
    Axis(setting="static_graph", values=[False, True]),
]
START: Configuration = {
    "bucket_cap_mb": 25,
    "gradient_as_bucket_view": False,
    "static_graph": False,
}


def cost(point: Configuration) -> float:
    """A step with its best at 2 MiB and views on."""
    by_cap = {0.5: 0.80, 1: 0.75, 2: 0.70, 5: 0.74, 10: 0.85, 25: 1.0, 50: 1.1, 100: 1.2}
    view = 0.97 if point["gradient_as_bucket_view"] else 1.0
    return by_cap[float(point["bucket_cap_mb"] or 0)] * view


def run(search: Search) -> list[Tried]:
    tried: list[Tried] = []
    while (point := search.next(tried)) is not None:
        tried.append(Tried(point, cost(point)))
    return tried


@pytest.mark.slow
def test_a_small_grid_is_tried_whole_and_nothing_twice() -> None:
    search = Search(AXES, START, limit=1000)
    tried = run(search)
    assert len({key_of(t.configuration) for t in tried}) == len(tried) == 8 * 2 * 2 - 1


def test_predictions_lead_to_the_best_within_a_fifth_of_the_grid() -> None:
    pytest.importorskip("optuna", reason="needs the [tune] extra")
    # GIVEN predictions of the cap that are 10 % off but ordered right
    ratios = {
        key_of({"bucket_cap_mb": cap}): cost({**START, "bucket_cap_mb": cap}) * 1.1
        for cap in AXES[0].values
    }
    predicted = Predicted(frozenset({"bucket_cap_mb"}), ratios)
    limit = default_limit(31, len(AXES))
    assert limit <= 0.2 * 32 + 1
    # WHEN searched
    tried = run(Search(AXES, START, limit=limit, predictions=predicted))
    # THEN the best found is within 1 % of the grid's best
    best = min(cost(point) for point in grid(AXES, START))
    assert min(t.ratio or 9 for t in tried) <= best * 1.01


def test_failed_trials_are_not_repeated_and_never_the_best() -> None:
    search = Search(AXES[1:], {k: v for k, v in START.items() if k != "bucket_cap_mb"}, limit=9)
    tried: list[Tried] = []
    while (point := search.next(tried)) is not None:
        tried.append(Tried(point, None))
    assert len(tried) == 3
    assert search.best(tried) == search.start


def test_a_search_goes_on_as_if_it_had_never_stopped_also_in_the_estimators_stage() -> None:
    optuna = pytest.importorskip("optuna")
    asked: list[int] = []
    ask = optuna.study.Study.ask

    def count(study: object, *arguments: object) -> object:
        asked.append(1)
        return ask(study, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optuna.study.Study, "ask", count)
        whole = run(Search(AXES, START, limit=20))
        assert asked, "the single changes are over before the limit"
        # WHEN another process goes on from any number of finished trials
        for kept in (3, 12, 17, 19):
            again = Search(AXES, START, limit=20).next(whole[:kept])
            assert again == whole[kept].configuration
    assert len({key_of(item.configuration) for item in whole}) == 20


def test_true_and_one_are_different_values() -> None:
    assert key_of({"a": True}) != key_of({"a": 1}) != key_of({"a": "1"})


def test_a_pair_is_named_only_where_its_share_can_be_told_from_the_two_effects() -> None:
    pytest.importorskip("sklearn")
    start: Configuration = {"strategy": "ddp", "cap": 25, "view": False}
    # GIVEN tp tried once, all else as it is, and cap and view in all four combinations
    points = [("tp", 25, False, 2.5), ("ddp", 5, False, 0.9), ("ddp", 25, True, 0.95)]
    points += [("ddp", 5, True, 0.6), ("ddp", 1, False, 1.1), ("ddp", 1, True, 1.0)]
    tried = [Tried({"strategy": s, "cap": c, "view": v}, ratio) for s, c, v, ratio in points]
    found = fit(tried, start)
    assert found is not None
    # THEN no pair with tp is among those that do something together
    assert found.interactions
    assert all("strategy" not in left + right for left, right, _ in found.interactions)
