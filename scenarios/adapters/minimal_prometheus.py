"""The part of the Prometheus client that upstream's metrics of transfers need: counters, histograms, and their text.

Source: prometheus_client metrics.py, exposition.py generate_latest; contract/golden/kv_connector_stats_golden.txt.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Sequence, Tuple


def _number_text(value: float) -> str:
    """With an exponent from a million on."""
    text = repr(value)
    if value == float("inf"):
        return "+Inf"
    if value < 1e6 or "e" in text:
        return text
    whole, fraction = text.split(".")
    digits = (whole + fraction).rstrip("0")
    return f"{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e+{len(whole) - 1:02}"


class _Series:
    """One set of label values."""

    def __init__(self, bounds: Sequence[float]):
        self.bounds = bounds
        self.counts = [0.0] * len(bounds)
        self.sum = 0.0

    def inc(self, amount: float) -> None:
        self.sum += amount

    def observe(self, amount: float) -> None:
        self.sum += amount
        self.counts[next(place for place, bound in enumerate(self.bounds) if amount <= bound)] += 1


class _Metric:
    """Its series are in the order in which they were asked for."""

    kind = ""
    suffix = ""

    def __init__(self, name: str, documentation: str, labelnames: Sequence[str], buckets: Sequence[float] = ()):
        self._name = name + self.suffix
        self._documentation = documentation
        self._labelnames = labelnames
        self._bounds = [*buckets, float("inf")]
        self._series: Dict[Tuple[str, ...], _Series] = {}

    def labels(self, *values: str) -> _Series:
        return self._series.setdefault(values, _Series(self._bounds))

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self._name} {self._documentation}"
        yield f"# TYPE {self._name} {self.kind}"
        for values, series in self._series.items():
            labels = dict(zip(self._labelnames, values))
            for suffix, added, value in self._samples(series):
                pairs = sorted({**labels, **added}.items())
                text = ",".join([f'{label}="{of_label}"' for label, of_label in pairs])
                yield f"{self._name}{suffix}{{{text}}} {_number_text(value)}"

    def _samples(self, series: _Series) -> Iterator[Tuple[str, Dict[str, str], float]]:
        raise NotImplementedError


class Counter(_Metric):
    kind = "counter"
    suffix = "_total"

    def _samples(self, series: _Series) -> Iterator[Tuple[str, Dict[str, str], float]]:
        yield "", {}, series.sum


class Histogram(_Metric):
    kind = "histogram"

    def _samples(self, series: _Series) -> Iterator[Tuple[str, Dict[str, str], float]]:
        count = 0.0
        for bound, of_bucket in zip(series.bounds, series.counts):
            count += of_bucket
            yield "_bucket", {"le": _number_text(bound)}, count
        yield "_count", {}, count
        yield "_sum", {}, series.sum


class Registry:
    """All metrics that were made, in that order."""

    def __init__(self) -> None:
        self._metrics: List[_Metric] = []

    def make(self, metric_type: Any) -> Any:
        """The maker of metrics of that type."""
        def made(*arguments: Any, **named: Any) -> _Metric:
            self._metrics.append(metric_type(*arguments, **named))
            return self._metrics[-1]
        return made

    def lines(self) -> List[str]:
        return [line for metric in self._metrics for line in metric.lines()]
