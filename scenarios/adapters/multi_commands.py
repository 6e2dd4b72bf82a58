"""The scheduler and the MultiConnector of a real vLLM release, over scripted children and NIXL, driven by the commands of
contract/engine/engine_words.h; with NIXL a pair of them.

What scheduler_commands.py says of the scheduler holds; of the connector, what corrected_multi_connector.py says. Where
upstream raises, another engine starts. What contract/scheduler/scheduler.h refuses of a report, upstream asserts.
"""

from __future__ import annotations

import importlib
from collections import Counter
from types import SimpleNamespace
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Sequence

from corrected_multi_connector import corrected_multi_connector
from disaggregated_commands import Between, OfPair
from engine_target import ROLES, AddRequest, ChildReport, Config, Nixl, Script, Scripted, World, record_of, script_of
from line_language import print_integers, print_text
from scheduler_commands import UpstreamScheduler
from scripted_connector import ScriptedChildren, ShutdownFailed, make_child_class
from session import Unsupported
from upstream_disaggregated import Connectors as NixlConnectors
from upstream_pool import Modules
from upstream_scheduler import make_output
from upstream_workers import Workers

_KV_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector"
_NUM_JOBS_MAX = 1 << 24


class _Connectors:
    """The halves of one MultiConnector: the scheduler's, and the workers' of all ranks."""

    def __init__(self, modules: Modules, config: Config, children: ScriptedChildren, uncorrected: FrozenSet[str],
                 make_nixl: Any):
        """make_nixl(role, rank): that half of NIXL, where it is among the children."""
        module = importlib.import_module(f"{_KV_CONNECTOR}.v1.multi_connector")
        base = importlib.import_module(f"{_KV_CONNECTOR}.v1.base")
        metrics = importlib.import_module(f"{_KV_CONNECTOR}.v1.metrics")
        of_config = config.connector.children
        if len(config.groups) > 1 and not hasattr(module.MultiConnector, "request_finished_all_groups"):
            raise Unsupported(f"vLLM {modules.release.version} has no MultiConnector for several groups")
        if config.connector.multi_connector_shares_blocks:
            raise Unsupported(f"vLLM {modules.release.version} has multi_connector_shares_blocks=false")
        make_class = make_child_class(base, metrics, modules.kv_events.AllBlocksCleared, children)
        classes = [make_class(child.connector_class, child.hma) if isinstance(child, Scripted) else
                   lambda vllm_config, role, _: make_nixl(role, vllm_config.rank) for child in of_config]
        take_groups = [getattr(child, "hma", True) for child in of_config]
        module.KVTransferConfig = SimpleNamespace
        module.KVConnectorFactory = SimpleNamespace(
            get_connector_class=lambda transfer: classes[transfer.place],
            supports_hma_config=lambda transfer: take_groups[transfer.place])
        connector_type = _recording(corrected_multi_connector(module, uncorrected), children)

        def make(role: Any, rank: Optional[int]) -> Any:
            places = [{"place": place, "child": child} for place, child in enumerate(of_config)]
            vllm_config = SimpleNamespace(
                kv_transfer_config=SimpleNamespace(engine_id="engine", kv_connector_extra_config={"connectors": places}),
                scheduler_config=SimpleNamespace(
                    disable_hybrid_kv_cache_manager=not all(take_groups)),
                rank=rank)
            return connector_type(vllm_config, role, SimpleNamespace())

        self.scheduler = make(base.KVConnectorRole.SCHEDULER, None)
        # Requests that the last lookup put off (corrected_scheduler.py).
        type(self.scheduler).put_off = property(lambda connector: children.put_off)
        self.ranks = [make(base.KVConnectorRole.WORKER, rank) for rank in range(config.ranks)]
        self.workers = Workers(self.ranks)
        self._start(can_cross_layers=len(config.groups) == 1 and config.groups[0].kind != "mamba")

    def _start(self, can_cross_layers: bool) -> None:
        """As upstream's GPUModelRunner.initialize_kv_cache and EngineCore.__init__."""
        for rank in self.ranks:
            if can_cross_layers and rank.prefer_cross_layer_blocks:
                rank.register_cross_layers_kv_cache(None, None)
            else:
                rank.register_kv_caches({})
        handshakes = {number: rank.get_handshake_metadata() for number, rank in enumerate(self.ranks)}
        given = {number: handshake for number, handshake in handshakes.items() if handshake is not None}
        if hasattr(self.scheduler, "set_xfer_handshake_metadata_pp_aware"):
            self.scheduler.set_xfer_handshake_metadata_pp_aware(
                {(0, number): handshake for number, handshake in given.items()})
        else:
            self.scheduler.set_xfer_handshake_metadata(given)

    def shut_down(self) -> None:
        """As upstream's EngineCore.shutdown, with each rank a process of its own."""
        for half in [*self.ranks, self.scheduler]:
            try:
                half.shutdown()
            except ShutdownFailed:
                pass


def _recording(connector_type: Any, children: ScriptedChildren) -> Any:
    """The same, which records what clients get, and which child loads."""

    class Recording(connector_type):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.loading: Dict[str, int] = {}  # the requests that wait for a load, and the child that loads
            self._would_load_async = False

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
            answer = super().get_num_new_matched_tokens(request, num_computed_tokens)
            self._would_load_async = answer[1]
            return answer

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            if num_external_tokens and self._would_load_async:
                self.loading[request.request_id] = self._requests_to_connector[request.request_id]
            super().update_state_after_alloc(request, blocks, num_external_tokens)

        def update_connector_output(self, connector_output: Any) -> None:
            for name in connector_output.finished_recving or ():
                self.loading.pop(name, None)
            super().update_connector_output(connector_output)

        def request_finished(self, request: Any, blocks: Any) -> Any:
            return children.note_client_params(request, super().request_finished(request, blocks))

    if hasattr(connector_type, "request_finished_all_groups"):
        def request_finished_all_groups(self: Any, request: Any, blocks: Any) -> Any:
            answer = connector_type.request_finished_all_groups(self, request, blocks)
            # With a child that takes one group alone upstream calls request_finished, which noted it.
            return children.note_client_params(request, answer) if self._all_support_hma else answer

        Recording.request_finished_all_groups = request_finished_all_groups
    return Recording


class UpstreamMulti(UpstreamScheduler):
    """A scheduler with its connector, and the workers of all ranks, which take steps in the order of planning."""

    has_workers = True

    def __init__(self, modules: Modules, config: Config, world: World, uncorrected: FrozenSet[str] = frozenset()):
        others = [type(child).__name__ for child in config.connector.children
                  if not isinstance(child, (Scripted, Nixl))]
        if others:
            # Each of them has copies or storage of its own, which only its own commands' classes report.
            raise Unsupported(f"(multi ...) over {', '.join(others)}: upstream's is served only over Scripted and Nixl")
        self._uncorrected = uncorrected
        self._start_engine(modules, config, world)

    def _start_engine(self, modules: Modules, config: Config, world: World, calls: Sequence[str] = ()) -> None:
        self._children = ScriptedChildren(calls)
        self._connectors = _Connectors(modules, config, self._children, self._uncorrected, self._make_nixl)
        super().__init__(modules, config, world, self._uncorrected)
        self._children.name_texts = self._name_texts
        self._received: set = set()  # names and ranks, of loads under way

    def _make_connector(self) -> Any:
        return self._connectors.scheduler

    def _make_nixl(self, role: Any, rank: Optional[int]) -> Any:
        raise AssertionError("there is no NIXL without a pair")

    def _is_scripted(self, place: int) -> bool:
        children = self._config.connector.children
        return place < len(children) and isinstance(children[place], Scripted)

    # ---- Commands (contract/engine/engine_words.h) ----

    def add_request(self, request: AddRequest) -> str:
        if self._is_scripted(request.child):
            self._children.scripts[request.child, request.id] = script_of(request)
        return super().add_request(request)

    def script_connector(self, name, *script) -> str:
        if not self._world.knows([name]):
            return "error=unknown_request"
        script = Script(*script)
        if not self._is_scripted(script.child):
            return "error=not_in_config"
        self._children.scripts[script.child, name] = script
        return "error=none"

    def schedule(self) -> str:
        return self._ending(super().schedule)

    def _finish(self, names: Optional[List[str]], status: str) -> str:
        return self._ending(lambda: super(UpstreamMulti, self)._finish(names, status))

    def update(self, token, accepted, samples, finished_recving, finished_sending, invalid_blocks, reports) -> str:
        if not self._world.knows([name for report in reports for name in report.sending + report.recving]):
            return "error=unknown_request"
        self._reports = reports
        return self._ending(lambda: super(UpstreamMulti, self).update(
            token, accepted, samples, finished_recving, finished_sending, invalid_blocks, []))

    def reset_prefix_cache(self, reset_running_requests, reset_connector, connector_fails, failing_children,
                           silent_children) -> str:
        if connector_fails:
            return "error=not_in_config"
        if not all(map(self._is_scripted, failing_children + silent_children)):
            return "error=not_in_config"
        self._children.failing = set(failing_children)
        self._children.silent = set(silent_children) - self._children.failing
        return super().reset_prefix_cache(reset_running_requests, reset_connector, connector_fails, [], [])

    def _ending(self, run: Any) -> str:
        """The answer of run, unless upstream raises."""
        try:
            return run()
        except RuntimeError as error:
            if "KV transfer params" not in str(error):
                raise
            return self._end("several_params")

    def _end(self, code: str) -> str:
        self._connectors.shut_down()
        self._start_engine(self._modules, self._config, self._world, self._children.calls)
        return f"error=none engine_ended={code}"

    # ---- Steps ----

    def _run_step(self, sampled: Dict[str, list]) -> str:
        refusal = self._take_reports(self._reports)
        if refusal is not None:
            return f"error={refusal}"
        if not self._all_received():
            return self._end("not_loading")
        report = self._connectors.workers.run_step(self._scheduler.in_flight[0].output)
        # Upstream reports sets.
        report.finished_recving = self._world.in_order(report.finished_recving)
        report.finished_sending = self._world.in_order(report.finished_sending)
        report.invalid_block_ids = sorted(report.invalid_block_ids)
        self._received = {(name, rank) for name, rank in self._received if name not in report.finished_recving}
        meta = report.kv_connector_worker_meta
        is_empty = not (report.finished_recving or report.finished_sending or report.invalid_block_ids or meta)
        # A child no longer holds a request into whose blocks another child loads.
        still_loading = self._connectors.scheduler.loading.keys() - set(report.finished_recving)
        if still_loading & set(report.finished_sending):
            return self._end("not_finished")
        code = self._report_refusal(report.finished_recving, report.finished_sending, report.invalid_block_ids)
        if code is not None:
            return self._end(code)
        output = make_output(sampled)
        # A report of statistics alone: contract/scheduler/scheduler.h has no statistics.
        output.kv_connector_output = None if is_empty else report
        return (
            f"{self._take(output)} finished_recving={self._names_text(report.finished_recving)}"
            f" finished_sending={self._names_text(report.finished_sending)}"
            f" invalid_blocks={print_integers(report.invalid_block_ids)}"
            f" completed_jobs=[{' '.join(self._completed_texts(meta))}]"
            f" {self.prefix}stats_of_children=[{' '.join(self._stats_texts(report.kv_connector_stats))}]"
            f"{self._report_text(report)}"
        )

    def _take_reports(self, reports: List[ChildReport]) -> Optional[str]:
        """Gives the children their reports; returns the refusal, if any."""
        self._children.reports = {}
        for report in reports:
            if not self._is_scripted(report.child) or report.rank >= self._config.ranks:
                return "not_in_config"
            if any(job >= _NUM_JOBS_MAX for job in report.jobs):
                return "bad_range"
            if (report.child, report.rank) in self._children.reports:
                return "listed_twice"
            self._children.reports[report.child, report.rank] = report
        return None

    def _all_received(self) -> bool:
        """Whether each child reports as received what it loads, once on a rank."""
        for report in self._reports:
            for name in set(report.recving):
                if self._connectors.scheduler.loading.get(name) != report.child:
                    return False
                if (name, report.rank) in self._received:
                    return False
                self._received.add((name, report.rank))
        return True

    def _report_refusal(self, finished_recving: Any, finished_sending: Any, invalid_blocks: Any) -> Optional[str]:
        """Unlike the scripted connector's report, this one comes from workers."""
        self._scripted = self._connectors.scheduler
        try:
            return super()._report_refusal(finished_recving, finished_sending, invalid_blocks)
        finally:
            self._scripted = None

    # ---- Answers ----

    def _completed_texts(self, meta: Any) -> Iterable[str]:
        if meta is None:
            return
        num_children = len(self._config.connector.children)
        counts = Counter(job * num_children + place for place, part in enumerate(meta.metadata) if part is not None
                         for job in part.jobs)
        for job, count in sorted(counts.items()):
            yield f"(completed job={job} num_workers={count})"

    @staticmethod
    def _stats_texts(stats: Any) -> List[str]:
        if stats is None:
            return []
        return [f"(stats class={print_text(name)} type=scripted sizes={print_integers(part.data['sizes'])})"
                for name, part in stats.data.items()]

    # ---- What is observed ----

    def observe(self, state: bool) -> str:
        scheduler = self._connectors.scheduler
        chosen = scheduler._requests_to_connector
        extras = [("", scheduler._extra_async_saves)]
        extras += [(f" rank={rank}", half._extra_async_saves) for rank, half in enumerate(self._connectors.ranks)]
        num_extra = sum(len(numbers) for _, numbers in extras)
        prefix = self.prefix
        text = f"{super().observe(state)} {prefix}num_chosen={len(chosen)} {prefix}num_extra_saves={num_extra}"
        if not state:
            return text
        who = " ".join([f"(chosen request={print_text(request)} child={place})"
                        for request, place in sorted(chosen.items())])
        saves = " ".join([f"(extra{of_rank} request={print_text(request)} saves={number})"
                          for of_rank, numbers in extras for request, number in sorted(numbers.items())])
        return f"{text} {prefix}chosen=[{who}] {prefix}extra_saves=[{saves}]"

    def observe_refused(self, state: bool) -> str:
        """The children's calls at the start are in the answer to the first command that is not refused."""
        calls, self._children.calls = self._children.calls, []
        text = self.observe(state)
        self._children.calls = calls
        return text

    def _calls_text(self) -> str:
        params = self._children.take_client_params(self.prefix)
        return self._children.take_calls(self.prefix) + params


class _NixlChild:
    """A half of NIXL as a child. The result of a handshake exists from the start (upstream_disaggregated.py); its
    statistics are not used."""

    prefer_cross_layer_blocks = True

    def __init__(self, connector: Any):
        self._connector = connector

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connector, name)

    def register_kv_caches(self, *_: Any) -> None:
        pass

    register_cross_layers_kv_cache = set_xfer_handshake_metadata = register_kv_caches
    set_xfer_handshake_metadata_pp_aware = shutdown = register_kv_caches

    def get_handshake_metadata(self) -> Any:
        return SimpleNamespace(text="of another kind")

    def get_block_ids_with_load_errors(self) -> set:
        return set(self._connector.get_block_ids_with_load_errors())

    def get_kv_connector_stats(self) -> None:
        self._connector.get_kv_connector_stats()


class MultiOfPair(OfPair, UpstreamMulti):
    """One of a pair. If one ends, the other ends, too."""

    def __init__(self, modules: Modules, config: Config, world: World, uncorrected: FrozenSet[str], pair: "MultiPair",
                 role: str):
        self._pair = pair
        self._role_in_pair = role
        nixl = pair.nixl
        UpstreamMulti.__init__(self, modules, config._replace(
            num_gpu_blocks=nixl.num_gpu_blocks(role), ranks=nixl.world_sizes[role]), world, uncorrected)

    def _start_engine(self, *arguments: Any) -> None:
        self._start_in_pair(self._pair.nixl, self._role_in_pair)
        UpstreamMulti._start_engine(self, *arguments)

    def _make_nixl(self, role: Any, rank: Optional[int]) -> Any:
        halves = self._nixl.schedulers[self._role] if rank is None else self._nixl.workers[self._role][rank]
        return _NixlChild(halves)

    def _metadata_of_nixl(self, output: Any) -> Any:
        children = self._config.connector.children
        place = next(place for place, child in enumerate(children) if isinstance(child, Nixl))
        return output.kv_connector_metadata.metadata[place]

    def _run_step(self, sampled: Dict[str, list]) -> str:
        self._finished_now = []
        return UpstreamMulti._run_step(self, sampled)

    def _end(self, code: str) -> str:
        self._pair.restart()
        return f"error=none engine_ended={code}"

    def shut_down(self) -> None:
        self._connectors.shut_down()

    def start_again(self) -> None:
        self._start_engine(self._modules, self._config, self._world, self._children.calls)


class MultiPair:
    """Two engines, and the transport and clock between them."""

    def __init__(self, modules: Modules, config: Config, world: World, uncorrected: FrozenSet[str]):
        record = record_of(config, Nixl)
        self._make_nixl = lambda: NixlConnectors(modules, config._replace(connectors=[record]), uncorrected)
        self.nixl = self._make_nixl()
        self.between = Between(self.nixl.transport, record.transport_may_fail)
        self.engines = {role: MultiOfPair(modules, config, world, uncorrected, self, role) for role in ROLES}

    def restart(self) -> None:
        for engine in self.engines.values():
            engine.shut_down()
        self.nixl = self._make_nixl()
        self.between.start(self.nixl.transport)
        for engine in self.engines.values():
            engine.start_again()
