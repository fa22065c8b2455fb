"""Write the source of the example, in place of a system that delivers digits every day."""

from __future__ import annotations

import io
from datetime import date

from trainyard.files import storage, uris

DAYS = 5
"""The digits are enough for so many days; then they begin again."""


def write(directory: str, day: str) -> str:
    """Write some 360 of scikit-learn's digits to `DIRECTORY/day=DAY/digits.parquet`; return the URI of the folder."""
    from sklearn.datasets import load_digits

    digits = load_digits(as_frame=True)
    of_the_day = digits.frame.iloc[date.fromisoformat(day).toordinal() % DAYS :: DAYS]
    parquet = io.BytesIO()
    of_the_day.rename_axis("number").reset_index().to_parquet(parquet)
    folder = uris.join(directory, f"day={day}")
    storage.replace(uris.join(folder, "digits.parquet"), parquet.getvalue())
    return folder
