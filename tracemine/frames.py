"""Arrow tables as pandas DataFrames: the one place that loads pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd


def frame(table: pa.Table) -> pd.DataFrame:
    """Return a DataFrame whose integers stay integers: null is `pd.NA`, and no column becomes floating-point for it.

    >>> frame(pa.table({"dur_ns": [1, None]})).dtypes.tolist()
    [Int64Dtype()]
    """
    import pandas as pd

    dtypes = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    return table.to_pandas(types_mapper=dtypes.get)
