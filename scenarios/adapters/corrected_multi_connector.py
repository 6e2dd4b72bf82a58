"""Upstream's MultiConnector, corrected: contract/connectors/multi/multi_connector.h.

As corrected_scheduler.py: each correction is about one place where upstream goes wrong, and can be left out.
"""

from __future__ import annotations

from typing import Any, FrozenSet

# Name -> what upstream does without it.
CORRECTIONS = {
    "stats_overwritten": "of several children of one class the last one's statistics are kept alone (0.19.0; the later"
                         " release aggregates them)",
}


def corrected_multi_connector(module: Any, uncorrected: FrozenSet[str] = frozenset()) -> Any:
    """A subclass of MultiConnector. module: upstream's v1/multi_connector.py."""
    if "stats_overwritten" in uncorrected:
        return module.MultiConnector

    class CorrectedMultiConnector(module.MultiConnector):
        def get_kv_connector_stats(self) -> Any:
            by_class: Any = None
            for child in self._connectors:
                stats = child.get_kv_connector_stats()
                if stats is None:
                    continue
                if by_class is None:
                    by_class = module.MultiKVConnectorStats()
                name = type(child).__name__
                known = by_class.data.get(name)
                by_class[name] = stats if known is None else known.aggregate(stats)
            return by_class

    return CorrectedMultiConnector
