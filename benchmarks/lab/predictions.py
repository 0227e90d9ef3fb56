"""How far predictions from one traced run are from what the change really gave.

The prediction sees the traces of one configuration only. The truth is the target configuration,
measured without the profiler, in turn with the others; the noise floor is each configuration
against itself, one round against the other. Nothing is fitted on a target.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.store import Store
from advisor.whatif import sharded
from advisor.whatif.extract import programs
from advisor.whatif.network import predict_bandwidth
from advisor.whatif.predict import (
    Prediction,
    data_parallel,
    predict,
    predict_bucket_cap,
    predict_without_lateness,
    service_models,
)
from advisor.whatif.program import Program
from benchmarks.lab.families import Family, Question
from benchmarks.lab.measure import TRACES, is_recorded, round_medians_ns

HELD_OUT = "held-out"
"""Families of this prefix had no part in settling the model or its intervals."""
COUNTED_EFFECT = 0.03
"""Changes of the step by this share or more must be predicted with the right sign."""


@dataclass(frozen=True)
class Score:
    """One question answered. Times are ns per step.

    ``start_ns``: the traced configuration without the profiler; ``real_ns``: the target, both
    medians over the rounds. ``noise``: largest difference of two rounds of either, as a share.
    """

    family: str
    traced: str
    target: str
    setting: str
    value: float
    start_ns: int
    real_ns: int
    traced_step_ns: int | None
    predicted_ns: int | None
    low_ns: int | None
    high_ns: int | None
    noise: float
    why_none: str = ""

    @property
    def error(self) -> float | None:
        """Signed: predicted / real - 1."""
        return None if self.predicted_ns is None else self.predicted_ns / self.real_ns - 1

    @property
    def effect(self) -> float:
        """What the change did to the step, as a share of it."""
        return self.real_ns / self.start_ns - 1

    @property
    def right_sign(self) -> bool | None:
        """None where the effect is too small to count, or nothing was predicted."""
        if abs(self.effect) < COUNTED_EFFECT or self.predicted_ns is None:
            return None
        assert self.traced_step_ns is not None
        return (self.predicted_ns > self.traced_step_ns) == (self.effect > 0)

    @property
    def held(self) -> bool | None:
        """Whether the 90 % interval holds the real step."""
        if self.low_ns is None or self.high_ns is None:
            return None
        return self.low_ns <= self.real_ns <= self.high_ns


def score_family(family: Family, folder: Path) -> list[Score]:
    """Answer a family's questions from its recordings in ``folder``."""
    rounds = {name: round_medians_ns(folder / name) for name in family.configs}
    scores = []
    for traced in sorted(family.traced):
        with Store.create() as store:
            paths = sorted(str(path) for path in (folder / traced / TRACES).iterdir())
            ingest(paths, store, run=traced)
            derive(store)
            steps = programs(store, traced)
        scores += [
            _score(family.name, question, steps, rounds)
            for question in family.questions
            if question.traced == traced
        ]
    return scores


def _score(
    family: str, question: Question, steps: list[Program], rounds: Mapping[str, list[int]]
) -> Score:
    found = answer(steps, question) if steps else None
    pair = (rounds[question.traced], rounds[question.target])
    return Score(
        family=family,
        traced=question.traced,
        target=question.target,
        setting=question.setting,
        value=question.value,
        start_ns=round(statistics.median(pair[0])),
        real_ns=round(statistics.median(pair[1])),
        traced_step_ns=round(found.measured_ns) if found else None,
        predicted_ns=round(found.step_ns) if found else None,
        low_ns=round(found.low_ns) if found else None,
        high_ns=round(found.high_ns) if found else None,
        noise=max(max(values) / min(values) - 1 for values in pair),
        why_none="" if found else ("not predictable" if steps else "no complete step"),
    )


def answer(steps: list[Program], question: Question) -> Prediction | None:
    """What ``advisor whatif`` says to the question."""
    if question.setting == "bucket_cap_mb":
        ddp = data_parallel(steps)
        return None if ddp is None else predict_bucket_cap(steps, ddp, question.value)
    if question.setting == "link.bandwidth":
        return predict_bandwidth(steps, service_models(steps), question.value)
    if question.setting == "late_rank":
        return predict_without_lateness(steps, [int(question.value)])
    change = _SHARDED[question.setting]
    return predict(steps, lambda program: change(program, steps, int(question.value)))


def _prefetch(program: Program, _: list[Program], depth: int) -> Program | None:
    ahead = sharded.with_prefetch(program, "forward", depth)
    return None if ahead is None else sharded.with_prefetch(ahead, "backward", depth)


_SHARDED: dict[str, Callable[[Program, list[Program], int], Program | None]] = {
    "resharding": lambda program, _, __: sharded.without_resharding(program),
    "prefetch": _prefetch,
    "wrap_layers": lambda program, steps, units: sharded.with_wrapping(
        program, units, service_models(steps)
    ),
}


def summarise(scores: Sequence[Score]) -> dict[str, Any]:
    """The document that is committed: every score and the figures over all and per setting."""
    return {
        "summary": {
            "all": _figures(scores),
            "held-out": _figures([score for score in scores if score.family.startswith(HELD_OUT)]),
            **{
                setting: _figures([score for score in scores if score.setting == setting])
                for setting in sorted({score.setting for score in scores})
            },
        },
        "predictions": [
            {
                **asdict(score),
                "error": _rounded(score.error),
                "effect": _rounded(score.effect),
                "right_sign": score.right_sign,
                "held": score.held,
            }
            for score in scores
        ],
    }


def _figures(scores: Sequence[Score]) -> dict[str, Any]:
    errors = [score.error for score in scores if score.error is not None]
    signs = [score.right_sign for score in scores if score.right_sign is not None]
    held = [score.held for score in scores if score.held is not None]
    if not errors:
        return {"questions": len(scores), "answered": 0}
    sizes = np.abs(errors)
    return {
        "questions": len(scores),
        "answered": len(errors),
        "median_error": _rounded(float(np.median(errors))),
        "median_absolute_error": _rounded(float(np.median(sizes))),
        "p95_absolute_error": _rounded(float(np.quantile(sizes, 0.95))),
        "worst_error": _rounded(errors[int(np.argmax(sizes))]),
        "right_signs": f"{sum(signs)}/{len(signs)}",
        "intervals_held": _rounded(sum(held) / len(held)),
        "median_interval_width": _rounded(
            float(np.median([(s.high_ns - s.low_ns) / s.real_ns for s in scores
                             if s.high_ns is not None and s.low_ns is not None]))
        ),
        "noise_median": _rounded(float(np.median([score.noise for score in scores]))),
        "noise_p95": _rounded(float(np.quantile([score.noise for score in scores], 0.95))),
    }  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def render(results: Mapping[str, Any]) -> str:
    """The figures as a table, and the questions that were answered worst."""
    lines = [
        f"{'change':16} {'answered':>9} {'median':>7} {'|median|':>8} {'|p95|':>6} {'worst':>7} "
        f"{'sign':>7} {'90 % held':>9} {'width':>6} {'noise':>6}"
    ]
    for name, row in results["summary"].items():
        if not row["answered"]:
            lines.append(f"{name:16} {0:>5}/{row['questions']}")
            continue
        lines.append(
            f"{name:16} {row['answered']:>5}/{row['questions']:<3} {row['median_error']:>+7.1%} "
            f"{row['median_absolute_error']:>8.1%} {row['p95_absolute_error']:>6.1%} "
            f"{row['worst_error']:>+7.1%} {row['right_signs']:>7} {row['intervals_held']:>9.0%} "
            f"{row['median_interval_width']:>6.1%} {row['noise_median']:>6.1%}"
        )
    answered = [row for row in results["predictions"] if row["error"] is not None]
    answered.sort(key=lambda row: -abs(row["error"]))
    lines.append("worst:")
    lines += [_line(row) for row in answered[:8]]
    return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    return (
        f"  {row['family']:10} {row['traced']:18} -> {row['target']:18} {row['setting']:15} "
        f"{row['start_ns'] / 1e6:6.1f} -> {row['real_ns'] / 1e6:6.1f} ms, predicted "
        f"{row['predicted_ns'] / 1e6:6.1f} ({row['low_ns'] / 1e6:.1f}-{row['high_ns'] / 1e6:.1f}), "
        f"{row['error']:+.1%}"
    )


def write(results: Mapping[str, Any], path: Path) -> None:
    """Write the results as JSON."""
    path.write_text(json.dumps(results, indent=1) + "\n")


def score_all(
    families: Iterable[Family], folder: Path, *, say: Callable[[str], None]
) -> dict[str, Any]:
    """Score the families that were recorded in ``folder``."""
    scores: list[Score] = []
    for family in families:
        if not is_recorded(family, folder):
            say(f"{family.name}: not recorded")
            continue
        scores += score_family(family, folder / family.name)
    return summarise(scores)
