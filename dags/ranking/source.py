"""Write the source of the example: scikit-learn's diabetes data, 442 patients, as a CSV file."""

from __future__ import annotations

from trainyard.files import storage


def write(file: str) -> str:
    """Write number, ten measurements and the progression of each patient to the URI `file`; return the URI."""
    from sklearn.datasets import load_diabetes

    if not storage.exists(file):
        patients = load_diabetes(as_frame=True, scaled=False).frame
        storage.replace(file, patients.to_csv(index_label="patient").encode())
    return file
