"""An engine of a real vLLM release, or a pair, driven by the commands of contract/engine/engine_target.h.

It has what the configuration names: a scheduler alone, or under one of the connectors, or two under NIXL.
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, FrozenSet

from connector_commands import UpstreamConnector
from disaggregated_commands import Between, UpstreamDisaggregated
from engine_target import (
    OF_ENGINES,
    READERS,
    ROLES,
    AddRequest,
    Config,
    DecodeBench,
    Example,
    Multi,
    Nixl,
    Offloading,
    Simple,
    World,
    record_of,
    reports_failed_reads,
)
from multi_commands import MultiPair, UpstreamMulti
from scheduler_commands import UpstreamScheduler
from session import Unsupported
from simple_offload_commands import UpstreamSimpleOffload
from synchronous_connector_commands import UpstreamSynchronousConnector
from upstream_disaggregated import Connectors
from upstream_offload import KVOffload
from upstream_pool import Modules

_SCHEDULER_WITH = {Simple: UpstreamSimpleOffload, Example: UpstreamSynchronousConnector,
                   DecodeBench: UpstreamSynchronousConnector, Multi: UpstreamMulti}


class UpstreamEngine:
    """One or two schedulers, by role, and the world of the requests that were named."""

    def __init__(self, modules: Modules, load_kv_offload: Callable[[], KVOffload], config: Config,
                 uncorrected: FrozenSet[str] = frozenset()):
        """Raises Unsupported."""
        if config.device != "scripted":
            raise Unsupported(f"device={config.device}: upstream's workers need a GPU, expected device=scripted")
        self._world = world = World()
        self._config = config
        connector_type = type(config.connector)
        if record_of(config, Nixl):
            if connector_type is Multi:
                pair = MultiPair(modules, config, world, uncorrected)
                self._schedulers, self._between = dict(pair.engines), pair.between
            else:
                connectors = Connectors(modules, config, uncorrected)
                self._schedulers = {role: UpstreamDisaggregated(modules, config, world, uncorrected, connectors, role)
                                    for role in ROLES}
                self._between = Between(connectors.transport, config.connector.transport_may_fail)
            connector: Any = self._between
        else:
            if connector_type is Offloading:
                connector = UpstreamConnector(load_kv_offload(), config, world, uncorrected)
            else:
                make = _SCHEDULER_WITH.get(connector_type, UpstreamScheduler)
                connector = make(modules, config, world, uncorrected)
            self._schedulers = {"producer": connector}
            self.observe = connector.observe
            self.observe_refused = getattr(connector, "observe_refused", connector.observe)
        producer = self._schedulers["producer"]
        self.grammar_compiled = producer.grammar_compiled
        for verb in OF_ENGINES:
            setattr(self, verb, self._of_engine(verb))
        for verb in READERS:
            if not hasattr(self, verb):
                setattr(self, verb, getattr(connector, verb, _not_in_config))

    def _of_engine(self, verb: str) -> Callable[..., str]:
        """The command of the engine that its last argument names."""
        runs: Dict[str, Callable[..., str]] = {
            role: getattr(scheduler, verb, _not_in_config) for role, scheduler in self._schedulers.items()}
        return lambda *arguments: runs.get(arguments[-1], _not_in_config)(*arguments[:-1])

    def add_request(self, *arguments) -> str:
        request = AddRequest(*arguments)
        if not self._world.declare(request):
            return "error=already_declared"
        if request.engine not in self._schedulers:
            return "error=not_in_config"
        return self._schedulers[request.engine].add_request(request)

    def hand_over(self, name, new_name, max_tokens, priority, arrival_time, skip_reading_prefix_cache) -> str:
        prompt = self._world.requests.get(name)
        is_new = False
        if prompt is not None:
            request = AddRequest(new_name, prompt.tokens, max_tokens, priority=priority, arrival_time=arrival_time,
                                 lora_name=prompt.lora_name, lora_id=prompt.lora_id, cache_salt=prompt.cache_salt,
                                 skip_reading_prefix_cache=skip_reading_prefix_cache)
            is_new = self._world.declare(request)
        consumer = self._schedulers.get("consumer")
        if consumer is None or not consumer.may_look_up(skip_reading_prefix_cache):
            return "error=not_in_config"
        if prompt is None:
            return "error=unknown_request"
        if not is_new:
            return "error=already_declared"
        params = self._schedulers["producer"].transfer_params.get(name)
        if params is None:
            return "error=not_finished"
        # A router sends it as JSON.
        answer = consumer.add(request, copy.deepcopy(params))
        # A failure of a second reader would not be reported.
        if answer == "error=none" and not reports_failed_reads(self._config.groups):
            del self._schedulers["producer"].transfer_params[name]
        return answer

    def observe(self, state: bool) -> str:
        """Of a pair."""
        schedulers = [scheduler.observe(state) for scheduler in self._schedulers.values()]
        return f"{''.join(schedulers)}{self._between.observe(state)}"

    def observe_refused(self, state: bool) -> str:
        """Likewise."""
        schedulers = [getattr(scheduler, "observe_refused", scheduler.observe)(state)
                      for scheduler in self._schedulers.values()]
        return f"{''.join(schedulers)}{self._between.observe(state)}"


def _not_in_config(*_: Any) -> str:
    return "error=not_in_config"
