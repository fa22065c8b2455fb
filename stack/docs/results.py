"""What operators and sensors without a job return: the keys of their result in XCom, and their meaning."""

from __future__ import annotations

CHAMPION = {
    "uri": "The URI of the champion.",
    "weights_sha256": "The sha256 of its weights.",
    "metrics": "Its metrics.",
}

RESULTS: dict[str, dict[str, str]] = {
    "DatasetSensor": {"uri": "The URI of the dataset.", "version": "Its newest version."},
    "ChampionSensor": CHAMPION,
    "ApplicationSensor": {
        "application": "The id of the application.",
        "state": "Its state in YARN.",
        "final_status": "Its final status in YARN.",
        "diagnostics": "YARN's diagnostics.",
    },
}
"""The result of each class, key by key. Other operators return nothing, or the result of their job."""
