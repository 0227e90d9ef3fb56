"""How likely each slow location makes the times that like calls of different groups take."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor.metrics.links.durations import CALL, Durations
from advisor.metrics.links.expected import Assumption, nothing_known
from advisor.metrics.links.locations import Members
from advisor.metrics.links.ring_reach import ADDED_NS
from advisor.metrics.rings.nccl import PASSES
from advisor.metrics.timeline.intervals import Bools
from advisor.statistics import Floats
from advisor.vocabulary.operations import ROOTED

SLOWDOWNS: Floats = np.exp(np.linspace(np.log(1.08), np.log(30.0), 47))
"""How many times as long what crosses it takes; a doubling is as likely as the next."""
ALIKE = ((0.6, 0.02), (0.35, 0.05), (0.05, 0.15))
"""Probability and standard deviation of the logarithm by which healthy groups' times differ: equal
groups', those of groups at other distances, and those beside other compute."""
_UNKNOWN = math.log(SLOWDOWNS[-1])
"""Standard deviation of the logarithm of what a call should take where nothing says it."""


def likelihoods(
    timed: Sequence[Durations],
    slows: Bools,
    crossed: Bools,
    distant: Bools,
    column: Mapping[Members, int],
    assumed: Mapping[bool, Sequence[Assumption]],
) -> tuple[Floats, float]:
    """Per location and slowdown the logarithm of how likely the calls' times are; and if nothing
    is slow.

    ``crossed``: groups whose rings between hosts go over NVLink that is slow. How long they take
    then is the slow edge's, so that without it no network may have to be faster than it can be.
    Calls of which ranks were not read may have waited for these, and took any part of their time.
    Kinds of one family tell the same: they count as one, by their time.
    """
    result = np.zeros((len(slows), len(SLOWDOWNS)))
    told_within = crossed & slows.any(axis=1, keepdims=True)
    within = assumed[True][0]
    healthy = 0.0
    for inside, assumptions in assumed.items():
        own = [one for one in timed if (one.kind.hosts == 1) == inside]
        whole: dict[object, float] = defaultdict(float)
        for one in own:
            whole[one.kind.family, frozenset(one.groups)] += one.total_ns
        some, nothing = [], []
        for assumption in assumptions:
            sums = np.full_like(result, np.log(assumption.chance))
            none = float(np.log(assumption.chance))
            for one in own:
                part = one.total_ns / whole[one.kind.family, frozenset(one.groups)]
                own_columns = [column[group] for group in one.groups]
                takes = replace(assumption, takes=nothing_known) if one.kind.unread else assumption
                by_location, by_none = _of_kind(
                    one,
                    slows[:, own_columns],
                    crossed[:, own_columns],
                    told_within[:, own_columns],
                    distant,
                    takes,
                    within.takes(replace(one.kind, hosts=1), one.groups[0]),
                )
                sums += part * by_location
                none += part * by_none
            some.append(sums)
            nothing.append(none)
        result += np.logaddexp.reduce(np.array(some), axis=0)
        healthy += float(np.logaddexp.reduce(nothing))
    return result, healthy


def _of_kind(
    one: Durations,
    touched: Bools,
    crossed: Bools,
    told_within: Bools,
    distant: Bools,
    assumption: Assumption,
    nvlink: tuple[float, float] | None = None,
) -> tuple[Floats, float]:
    """The same of one kind of call, over links that take what is assumed.

    ``told_within``: crossed groups of NVLink whose own calls say how slow it is. They may take
    longer for it, no less than its edge does, by ``nvlink``: what calls over a sound one take.
    """
    base = assumption.takes(one.kind, one.groups[0])
    least = assumption.least(one.kind, one.groups[0])
    # Calls that beat it all the same show that it does not hold here (reduced in a switch).
    fastest = float(one.log_ns.min())
    floor = -math.inf if least is None else min(least, fastest)
    usual, usually = (floor, CALL) if base is None else (min(base[0], fastest), base[1])
    middle, error = base or (float(np.median(one.log_ns)), _UNKNOWN)
    result = np.empty((len(touched), len(SLOWDOWNS)))
    # A root need not wait for what it sends.
    passes = 0 if one.kind.op in ROOTED else PASSES.get(one.kind.op, 1)
    for number, (slowdown, added_ns) in enumerate(zip(SLOWDOWNS, ADDED_NS, strict=True)):
        rest = 1.0 - passes * added_ns / one.whole_ns
        longer = np.where(
            distant[:, None],
            -np.log(np.where(rest > 0, rest, 1.0)),
            np.log1p((slowdown - 1) * one.bandwidth),
        )
        healthy = one.log_ns - touched * longer
        left = healthy - middle
        beyond = np.maximum(floor - healthy, 0.0) / CALL  # of what it is rated for
        beyond += np.maximum(usual - one.log_ns + (crossed & ~told_within) * longer, 0.0) / usually
        if nvlink is not None:
            edge = np.where(told_within, nvlink[0] + math.log(slowdown), -np.inf)
            beyond += np.maximum(edge - one.log_ns, 0.0) / nvlink[1]
        impossible = (touched & distant[:, None] & (rest <= 0)).any(axis=1)
        result[:, number] = _or_longer(
            _likelihood(left, one.errors, error), left, longer * told_within, one.errors, error
        ) + np.where(impossible, -np.inf, -0.5 * (beyond**2).max(axis=1))
    nothing = _likelihood((one.log_ns - middle)[None], one.errors, error)
    return result, float(nothing[0])


def _or_longer(
    as_others: Floats, left: Floats, most: Floats, errors: Floats, common: float
) -> Floats:
    """The same where calls between hosts may also take longer, as their ring goes over the slow
    NVLink: by up to ``most``, each part of it as likely as the next; or not at all, where the
    network is slower still. Only groups beside others of their kind tell that.
    """
    told = most > 0
    alone: Bools = np.all(told, axis=1)
    if alone.all() or not told.any():
        return as_others
    weight = np.where(told, 0.0, errors**-2.0)
    usual = (weight * left).sum(axis=1) / np.where(alone, 1.0, weight.sum(axis=1))
    longer = np.clip(left - usual[:, None], 0.0, most)
    own = math.sqrt(2 * math.pi) * np.hypot(errors, ALIKE[1][1])
    chance = np.log(np.minimum(own / np.where(told, most, own), 1.0)).sum(axis=1)
    found = np.logaddexp(as_others, _likelihood(left - longer, errors, common) + chance)
    return np.where(told.any(axis=1) & ~alone, found - math.log(2), as_others)


def _likelihood(left: Floats, errors: Floats, common: float) -> Floats:
    """Logarithm of how likely rows of deviations are: each with its error and what healthy groups
    differ by, all with one ``common`` error."""
    logs = []
    for chance, alike in ALIKE:
        weight = 1.0 / (errors**2 + alike**2)
        own = (weight * left**2).sum(axis=1)
        shared = (weight * left).sum(axis=1) ** 2 / (weight.sum() + common**-2)
        scale = np.log(weight).sum() - np.log1p(common**2 * weight.sum())
        logs.append(np.log(chance) + 0.5 * (scale - own + shared))
    stacked = np.stack(logs)
    most = stacked.max(axis=0)
    result: Floats = most + np.log(np.exp(stacked - most).sum(axis=0))
    return result
