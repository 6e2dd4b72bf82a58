"""The loggers of a real vLLM release, for the statistics of an OffloadingConnector.

KVConnectorLogging, OffloadingConnectorStats and OffloadPromMetrics are upstream's; minimal_prometheus.py stands in for
the Prometheus client.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, Dict, List

from line_language import print_text
from minimal_prometheus import Counter, Histogram, Registry

_KV_CONNECTOR_V1 = "vllm.distributed.kv_transfer.kv_connector.v1"


def plain(stats: Any) -> Dict[str, List[dict]]:
    """A step's statistics, as the process of the loggers gets them."""
    if stats is None:
        return {}
    return {transfer_type: list(map(asdict, operations)) for transfer_type, operations in stats.data.items()}


def operations_text(data: Dict[str, List[dict]]) -> str:
    texts = [f"(operation type={transfer_type} bytes={operation['op_size']}"
             f" microseconds={round(operation['op_time'] * 1e6)})"
             for transfer_type, operations in data.items() for operation in operations]
    return f"[{' '.join(texts)}]"


class StatLoggers:
    def __init__(self, connector_type: Any, engine_labels: List[int]):
        """connector_type: upstream's, which makes its statistics. engine_labels: by engine index."""
        metrics = importlib.import_module(f"{_KV_CONNECTOR_V1}.metrics")
        of_offloading = importlib.import_module(f"{_KV_CONNECTOR_V1}.offloading.metrics")
        self._logging = metrics.KVConnectorLogging(None)
        self._logging.connector_cls = connector_type
        self._registry = Registry()
        self._metrics = of_offloading.OffloadPromMetrics(
            SimpleNamespace(kv_transfer_config=None),
            {metrics.Gauge: None, metrics.Counter: self._registry.make(Counter),
             metrics.Histogram: self._registry.make(Histogram)},
            ["model_name", "engine"],
            {engine_idx: ["toy", str(label)] for engine_idx, label in enumerate(engine_labels)})
        self._engine_idx = 0

    def observe(self, data: Dict[str, List[dict]]) -> None:
        if data:
            self._metrics.observe(data, self._engine_idx)
            self._logging.observe(data)

    def log(self, next_engine_idx: int) -> str:
        """Returns their output. Another interval begins, under that index."""
        self._engine_idx = next_engine_idx
        stats = self._logging.transfer_stats_accumulator
        operations = operations_text({} if stats is None else stats.data)
        logged: List[str] = []
        self._logging.log(lambda _, text: logged.append(text))
        return (f"interval_stats={operations} logged=[{' '.join(map(print_text, logged))}]"
                f" metrics=[{' '.join(map(print_text, self._registry.lines()))}]")
