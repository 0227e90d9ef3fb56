"""Arrow tables as pandas frames in which integers stay integers beside nulls.

A nanosecond since the epoch needs 61 bits; as float64, which NumPy takes for a column with a null
in it, it would be rounded to 256 ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from advisor.findings import Finding

_DAY_NS = 86_400_000_000_000


def frame(table: pa.Table) -> pd.DataFrame:
    """``table`` with integers as pandas' nullable types (``Int64``) and the rest as Arrow's.

    Arrow's own integers fail ``describe()`` where float64 cannot hold them. Decimals become
    integers (sums of integers) or float64, enumerations strings, lists tuples (which can be
    counted), and intervals without months durations: arithmetic, comparison and ``describe()``
    then do what is expected of them.
    """
    import pandas as pd
    import pyarrow as pa

    tuples: dict[int, pd.Series] = {}
    for index, field in enumerate(table.schema):
        column = _plain(table.column(index))
        if _is_list(column.type):
            cells = [_tuple(cell) for cell in column.to_pylist()]
            tuples[index] = pd.Series(cells, dtype=object)
            column = pa.nulls(len(cells))  # holds the place
        if column is not table.column(index):
            table = table.set_column(index, field.name, column)
    made: pd.DataFrame = table.to_pandas(types_mapper=_dtype)
    for index, series in tuples.items():
        made.isetitem(index, series.to_numpy())
    return made


def findings_table(findings: Sequence[Finding]) -> pa.Table:
    """A row per finding; times in ns, ``ranks`` and ``fix`` as lists."""
    import pyarrow as pa

    text, whole = pa.string(), pa.int64()
    kinds = {
        "run": text, "rule": text, "severity": text, "title": text, "where": text,
        "savings_ns": whole, "savings_low_ns": whole, "savings_high_ns": whole,
        "savings_share": pa.float64(), "confidence": text, "ranks": pa.list_(whole),
        "process_group": text, "fix": pa.list_(text),
    }  # fmt: skip
    rows = [finding.model_dump(mode="json", include=set(kinds)) for finding in findings]
    return pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))


def _plain(column: Any) -> Any:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if kind == pa.month_day_nano_interval():
        return _durations(column)
    if not pa.types.is_decimal(kind):
        return column
    if kind.scale == 0:
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            return column.cast(pa.float64())  # past 64 bits
    return column.cast(pa.float64())


def _durations(column: Any) -> Any:
    """Intervals as durations in ns; as they are where one has months or is past 64 bits."""
    import pyarrow as pa

    spans = column.to_pylist()
    if any(span is not None and span.months for span in spans):
        return column
    whole = [None if one is None else one.days * _DAY_NS + one.nanoseconds for one in spans]
    if any(one is not None and abs(one) >= 2**63 for one in whole):
        return column
    return pa.chunked_array([pa.array(whole, pa.int64()).cast(pa.duration("ns"))])


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    nested = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(nested or pa.types.is_fixed_size_list(kind))


def _tuple(cell: Any) -> Any:
    return tuple(_tuple(one) for one in cell) if isinstance(cell, list) else cell


def _dtype(kind: Any) -> Any:
    """The pandas type of an Arrow type; None (pandas' own choice) where it has no kernel."""
    import pandas as pd
    import pyarrow as pa

    if pa.types.is_integer(kind):
        unsigned = pa.types.is_unsigned_integer(kind)
        return pd.api.types.pandas_dtype(f"{'UI' if unsigned else 'I'}nt{kind.bit_width}")
    return None if kind == pa.month_day_nano_interval() else pd.ArrowDtype(kind)
