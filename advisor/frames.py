"""Arrow tables as pandas frames whose columns stay Arrow: integers stay integers beside nulls.

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


def frame(table: pa.Table) -> pd.DataFrame:
    """``table`` with every column a ``pandas.ArrowDtype``.

    Decimals become int64 (sums of integers) or float64, and enumerations strings: arithmetic and
    comparison with plain numbers and text then do what is expected of them.
    """
    import pandas as pd

    for index, field in enumerate(table.schema):
        column = _plain(table.column(index))
        if column is not table.column(index):
            table = table.set_column(index, field.name, column)
    made: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
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
    if not pa.types.is_decimal(kind):
        return column
    if kind.scale == 0:
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            return column.cast(pa.float64())  # past 64 bits
    return column.cast(pa.float64())
