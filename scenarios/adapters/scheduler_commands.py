"""The scheduler of a real vLLM release driven by the commands of contract/engine/engine_words.h.

Alone, or under the scripted connector; what schedulers under other ones do builds on it.

Every answer comes from upstream's Scheduler or AsyncScheduler, its KV-cache manager and its requests. The adapter
itself decides what contract/scheduler/scheduler.h and properties/engine/driver.h refuse, and steps in where
corrected_scheduler.py and allocation_guard.py say.
"""

from __future__ import annotations

import importlib
from itertools import takewhile
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Tuple

from allocation_guard import AllocationGuard
from corrected_scheduler import corrected
from engine_target import AddRequest, Config, DecodeBench, Example, Script, Scripted, World, has_window, script_of
from kv_cache_target import hit_may_overshoot
from line_language import print_integers
from scripted_connector import block_ids_text, make_scripted_connector
from session import Unsupported
from upstream_kv_cache import NameTexts, blocks_text, stats_text
from upstream_pool import Modules, PoolView, UpstreamChanged
from upstream_scheduler import (
    Settings,
    compile_grammar,
    connector_types,
    make_drafts,
    make_output,
    make_request,
    make_scheduler,
    scheduler_type,
)

_NO_STATS = "[0 0 0 0 0 0 0]"


def _settings(config: Config) -> Settings:
    if config.use_eagle:
        method = "eagle"
    elif config.draft_model:
        method = "draft_model"
    else:
        method = "ngram" if config.num_speculative_tokens else "none"
    return Settings(
        **{key: getattr(config, key) for key in Settings._fields if key in Config._fields},
        speculative_method=method,
    )._replace(max_num_scheduled_tokens=config.max_num_scheduled_tokens or None)


def _tokens_text(tokens: Sequence[int]) -> str:
    """Upstream's placeholder is -1."""
    return f"[{' '.join([str(token & 0xFFFFFFFF) for token in tokens])}]"


class UpstreamScheduler:
    """One scheduler, its connector, and workers whose steps come back in the order in which they were planned."""

    # Before each key of an answer and of the observation, but not of `error`, connectors and workers.
    prefix = ""
    # Whether there are workers' halves of a connector, which report; else an update names the reports.
    has_workers = False
    # Whether a draft is accepted only if it is the next token.
    accepts_right_drafts_alone = False
    # Where the report of workers has the jobs that ended.
    completed_jobs = "completed_jobs"
    # Whether other engines read the KV of its requests.
    has_readers = False

    def __init__(self, modules: Modules, config: Config, world: World, uncorrected: FrozenSet[str] = frozenset()):
        if config.priority_victim_shifts_loop is False:
            raise Unsupported(f"vLLM {modules.release.version} has priority_victim_shifts_loop=true")
        self._modules = modules
        self._config = config
        self._world = world
        self._name_texts = NameTexts()
        self._hasher = modules.block_hasher(config.hash_algorithm, config.hash_seed, config.hash_block_size)
        connector = self._make_connector()
        self._scripted = None if self.has_workers else connector
        self._scheduler = make_scheduler(modules, _settings(config), connector,
                                         corrected(scheduler_type(config.async_scheduling), uncorrected))
        self._guard = AllocationGuard(self._scheduler.kv_cache_manager, config.groups, config.profile)
        self._guard.answer_refusals_with_no()
        if config.external_blocks_after_hits:
            self._guard.take_external_blocks_after_hits()
        self._pool = self._scheduler.kv_cache_manager.block_pool
        self._view = PoolView(modules, self._pool)
        self._status = modules.request.RequestStatus
        self._status_texts = {status: status.name.lower() for status in self._status}
        self._status_of_reason: Dict[Any, str] = {}
        for status in filter(self._status.is_finished, reversed(self._status)):
            self._status_of_reason[self._status.get_finished_reason(status)] = self._status_texts[status]
        self._pause_states = importlib.import_module("vllm.v1.core.sched.interface").PauseState

    def _make_connector(self) -> Any:
        """The scheduler's half, or None."""
        if not isinstance(self._config.connector, Scripted):
            return None
        return make_scripted_connector(connector_types().SupportsHMA, self._modules.kv_events.AllBlocksCleared,
                                       self._name_texts)

    # ---- Commands (contract/engine/engine_words.h) ----

    def add_request(self, request: AddRequest) -> str:
        """One that the world knows."""
        if request.do_remote_decode and not self.has_readers:
            return "error=not_in_config"
        # Files are named after tokens alone.
        if isinstance(self._config.connector, (Example, DecodeBench)) and (request.cache_salt or request.lora_name):
            return "error=not_in_config"
        if not self.may_look_up(request.skip_reading_prefix_cache):
            return "error=not_in_config"
        if request.do_remote_decode and has_window(self._config.groups) and request.max_tokens != 1:
            return "error=not_in_config"
        if self._scripted is not None and not request.child:
            self._scripted.set_script(request.id, script_of(request))
        params: Dict[str, Any] = {}
        if request.max_offload_tokens is not None:
            params["max_offload_tokens"] = request.max_offload_tokens
        if request.do_remote_decode:
            params.update(do_remote_decode=True, do_remote_prefill=False)
        return self.add(request, params)

    def may_look_up(self, skips: bool) -> bool:
        """Whether the request may read the GPU's cache."""
        config = self._config
        if skips or not self.has_workers or len(config.groups) == 1:
            return True
        return bool(config.external_blocks_after_hits) and not hit_may_overshoot(config)

    def add(self, request: AddRequest, kv_transfer_params: Dict[str, Any]) -> str:
        tokens, min_tokens = request.tokens, request.min_tokens
        if not tokens or not request.max_tokens:
            return "error=no_tokens"
        if min_tokens > request.max_tokens:
            return "error=bad_range"
        if len(tokens) >= self._config.max_model_len or len(tokens) + min_tokens > self._config.max_model_len:
            return "error=beyond_model_length"
        self._scheduler.add_request(self._make_request(request, kv_transfer_params))
        return "error=none"

    def _make_request(self, request: AddRequest, kv_transfer_params: Optional[Dict[str, Any]] = None) -> Any:
        return make_request(
            self._modules, request.id, list(request.tokens), self._hasher, request.max_tokens, request.min_tokens,
            eos_token_id=request.eos_token, stop_token_ids=request.stop_tokens, priority=request.priority,
            arrival_time=request.arrival_time, lora_name=request.lora_name, lora_id=request.lora_id,
            cache_salt=request.cache_salt, skip_reading_prefix_cache=request.skip_reading_prefix_cache,
            grammar=request.grammar, kv_transfer_params=kv_transfer_params)

    def schedule(self) -> str:
        scheduler = self._scheduler
        if len(scheduler.in_flight) == self._config.max_concurrent_batches:
            return "error=steps_in_flight"
        finished, scheduler.finished_in_order = scheduler.finished_in_order, []
        output = scheduler.schedule()
        preempted = scheduler.preempted_in_order
        if set(finished) != output.finished_req_ids or set(preempted) != output.preempted_req_ids:
            raise UpstreamChanged(f"schedule says {output.finished_req_ids} {output.preempted_req_ids}")
        prefix = self.prefix
        text = (
            f"error=none {prefix}scheduled=[{' '.join(self._scheduled_texts(output))}]"
            f" {prefix}new_reqs=[{' '.join(map(self._new_text, output.scheduled_new_reqs))}]"
            f" {prefix}cached_reqs=[{' '.join(self._cached_texts(output.scheduled_cached_reqs))}]"
            f" {prefix}common_prefix={print_integers(output.num_common_prefix_blocks)}"
            f" {prefix}preempted={self._names_text(preempted)} {prefix}finished={self._names_text(finished)}"
            f" {prefix}new_block_ids={print_integers(output.new_block_ids_to_zero or ())}"
        )
        text += self._plan_text(output)
        never_fits = scheduler.finish_what_never_fits()
        return text if never_fits is None else f"{text} {prefix}never_fits={self._name_texts[never_fits]}"

    def update(self, token, accepted, samples, finished_recving, finished_sending, invalid_blocks, reports) -> str:
        if not self._world.knows([name for name, _ in samples] + finished_recving + finished_sending):
            return "error=unknown_request"
        has_transfer_results = finished_recving or finished_sending or invalid_blocks
        if has_transfer_results and self.has_workers or reports:
            return "error=not_in_config"
        if not self._scheduler.in_flight:
            return "error=no_step_in_flight"
        sampled = self._sampled(token, accepted, samples)
        if sampled is None:
            return "error=wrong_token_count"
        if self.has_workers:
            return self._run_step(sampled)
        if has_transfer_results:
            code = self._report_refusal(finished_recving, finished_sending, invalid_blocks)
            if code is not None:
                return f"error={code}"
        return self._take(make_output(sampled, finished_recving, finished_sending, invalid_blocks))

    def update_draft_token_ids(self, name, tokens) -> str:
        if not self._world.knows([name]):
            return "error=unknown_request"
        if self.has_readers and has_window(self._config.groups):
            return "error=not_in_config"
        if len(tokens) > self._config.num_speculative_tokens or self._config.async_scheduling:
            return "error=not_in_config"
        self._scheduler.update_draft_token_ids(make_drafts({name: tokens}))
        return "error=none"

    def grammar_compiled(self, name) -> str:
        if not self._world.knows([name]):
            return "error=unknown_request"
        request = self._scheduler.requests.get(name)
        if request is not None and request.use_structured_output:
            compile_grammar(request)
        return "error=none"

    def finish_requests(self, names, status) -> str:
        if not self._world.knows(names):
            return "error=unknown_request"
        return self._finish(names, status)

    def finish_all_requests(self, status) -> str:
        return self._finish(None, status)

    def set_pause_state(self, state) -> str:
        self._scheduler.set_pause_state(self._pause_states[state.upper()])
        return "error=none"

    def reset_prefix_cache(self, reset_running_requests, reset_connector, connector_fails, failing_children,
                           silent_children) -> str:
        if self.has_workers and connector_fails or failing_children or silent_children:
            return "error=not_in_config"
        if self._scripted is not None:
            self._scripted.reset_fails = connector_fails
        try:
            success = self._scheduler.reset_prefix_cache(reset_running_requests, reset_connector)
        except RuntimeError:
            if not reset_running_requests:
                raise
            success = False
        return f"error=none {self.prefix}success={'true' if success else 'false'}"

    def script_connector(self, name, *script) -> str:
        if not self._world.knows([name]):
            return "error=unknown_request"
        if self._scripted is None or Script(*script).child:
            return "error=not_in_config"
        self._scripted.set_script(name, Script(*script))
        return "error=none"

    # ---- What kvfence refuses, and what workers do ----

    def _run_step(self, sampled: Dict[str, list]) -> str:
        """Runs the oldest step on all ranks, and updates the scheduler with their report."""
        report = self._run_workers(self._scheduler.in_flight[0].output)
        # Upstream reports sets.
        report.finished_recving = self._world.in_order(report.finished_recving)
        report.finished_sending = self._world.in_order(report.finished_sending)
        report.invalid_block_ids = sorted(report.invalid_block_ids)
        meta = report.kv_connector_worker_meta
        completed: Dict[int, int] = {}
        if meta is not None:
            completed = dict(sorted(getattr(meta, self.completed_jobs).items()))
            setattr(meta, self.completed_jobs, completed)
        output = make_output(sampled)
        output.kv_connector_output = report
        completed_texts = [f"(completed job={job_id} num_workers={count})" for job_id, count in completed.items()]
        return (
            f"{self._take(output)} finished_recving={self._names_text(report.finished_recving)}"
            f" finished_sending={self._names_text(report.finished_sending)}"
            f" invalid_blocks={print_integers(report.invalid_block_ids)} completed_jobs=[{' '.join(completed_texts)}]"
            f"{self._report_text(report)}"
        )

    def _run_workers(self, scheduler_output: Any) -> Any:
        """A step on all ranks: upstream's KVConnectorOutput."""
        raise NotImplementedError

    def _take(self, model_runner_output: Any) -> str:
        """The output of the oldest step."""
        scheduler = self._scheduler
        (outputs,) = scheduler.update_from_output(scheduler.in_flight[0].output, model_runner_output).values()
        stats = outputs.scheduler_stats
        connector_stats = stats.connector_prefix_cache_stats
        prefix = self.prefix
        return (
            f"error=none {prefix}outputs=[{' '.join(map(self._output_text, outputs.outputs))}]"
            f" {prefix}events={self._view.events(scheduler.kv_event_publisher.take())}"
            f" {prefix}stats={stats_text(stats.prefix_cache_stats)}"
            f" {prefix}connector_stats={_NO_STATS if connector_stats is None else stats_text(connector_stats)}"
            f" {prefix}spec_stats={self._spec_stats_text(stats.spec_decoding_stats)}"
        )

    def _finish(self, names: Optional[List[str]], status: str) -> str:
        if not self._can_end_with(status):
            return "error=bad_range"
        self._scheduler.finish_requests(names, self._status[status.upper()])
        return "error=none"

    def _can_end_with(self, status: str) -> bool:
        return self._status.is_finished(self._status[status.upper()])

    def _sampled(self, token: int, accepted: int, samples: List[Tuple[str, List[int]]]) -> Optional[Dict[str, list]]:
        """The tokens of each request of the oldest step; nothing if they do not fit it."""
        step = self._scheduler.in_flight[0]
        named = dict(samples)
        if len(named) != len(samples) or not named.keys() <= step.output.num_scheduled_tokens.keys():
            return None
        sampled = {}
        for name in step.output.num_scheduled_tokens:
            drafts = list(step.output.scheduled_spec_decode_tokens.get(name, ()))
            if name in named:
                tokens = list(named[name])
                if not (1 <= len(tokens) <= 1 + len(drafts) if name in step.sampling else not tokens):
                    return None
                if self.accepts_right_drafts_alone and tokens[:-1] != drafts[:len(tokens) - 1]:
                    return None
                sampled[name] = tokens
            else:
                accepted_drafts = drafts[:accepted]
                if self.accepts_right_drafts_alone:
                    accepted_drafts = list(takewhile(lambda draft: draft == token, accepted_drafts))
                sampled[name] = [token] * (1 + len(accepted_drafts)) if name in step.sampling else []
        return sampled

    def _report_refusal(self, finished_recving: List[str], finished_sending: List[str],
                        invalid_blocks: List[int]) -> Optional[str]:
        if self._scripted is None:
            return "not_in_config"
        if invalid_blocks:
            if len(self._config.groups) > 1:
                return "single_group_only"
            if min(invalid_blocks) == 0 or max(invalid_blocks) >= self._config.num_gpu_blocks:
                return "unknown_block"
        for ids in (invalid_blocks, finished_recving + finished_sending):
            if len(set(ids)) != len(ids):
                return "listed_twice"
        scheduler = self._scheduler
        for name in finished_recving:
            request = scheduler.requests.get(name)
            is_loading = (request is not None and request.status == self._status.WAITING_FOR_REMOTE_KVS
                          and name not in scheduler.finished_recving_kv_req_ids)
            if not is_loading and not self._is_held(name):
                return "not_loading"
        if not all(map(self._is_held, finished_sending)):
            return "not_finished"
        return None

    def _is_held(self, name: str) -> bool:
        request = self._scheduler.requests.get(name)
        return request is not None and request.is_finished()

    # ---- Answers ----

    def _plan_text(self, output: Any) -> str:
        """Further fields of a planned step."""
        return ""

    def _report_text(self, report: Any) -> str:
        """Further fields of a step's report."""
        return ""

    def _names_text(self, names: Sequence[str]) -> str:
        return f"[{' '.join([self._name_texts[name] for name in names])}]"

    def _scheduled_texts(self, output: Any) -> List[str]:
        sampling = self._scheduler.in_flight[-1].sampling
        drafts = output.scheduled_spec_decode_tokens
        return [
            f"(scheduled request={self._name_texts[name]} num_tokens={num_tokens}"
            f" samples={'true' if name in sampling else 'false'}"
            f"{' spec_tokens=' + _tokens_text(drafts[name]) if name in drafts else ''})"
            for name, num_tokens in output.num_scheduled_tokens.items()
        ]

    def _new_text(self, new: Any) -> str:
        return (f"(new request={self._name_texts[new.req_id]} num_computed_tokens={new.num_computed_tokens}"
                f" blocks={block_ids_text(new.block_ids)})")

    def _cached_texts(self, cached: Any) -> List[str]:
        texts = []
        for name, blocks, num_computed_tokens, num_output_tokens in zip(
                cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, cached.num_output_tokens):
            text = f"(cached request={self._name_texts[name]}"
            if name in cached.resumed_req_ids:
                text += " resumed=true"
            if name in cached.all_token_ids:
                text += " all_token_ids=true"
            text += f" num_computed_tokens={num_computed_tokens} num_output_tokens={num_output_tokens}"
            if blocks is not None:
                text += f" blocks={block_ids_text(blocks)}"
            texts.append(text + ")")
        return texts

    def _output_text(self, output: Any) -> str:
        text = (f"(output request={self._name_texts[output.request_id]}"
                f" tokens={print_integers(output.new_token_ids)}")
        if output.finish_reason is not None:
            text += f" status={self._status_of_reason[output.finish_reason]}"
        if output.stop_reason is not None:
            text += f" stop_reason={output.stop_reason}"
        return text + ")"

    def _spec_stats_text(self, stats: Any) -> str:
        if stats is None:
            return print_integers([0] * (3 + self._config.num_speculative_tokens))
        return print_integers([stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens,
                               *stats.num_accepted_tokens_per_pos])

    # ---- What is observed ----

    def observe(self, state: bool) -> str:
        scheduler = self._scheduler
        free_blocks = self._pool.free_block_queue.get_all_free_blocks()
        num_empty = [block.block_hash for block in free_blocks].count(None)
        num_queued = len(free_blocks)
        prefix = self.prefix
        text = self._calls_text() + (
            f" {prefix}num_running={len(scheduler.running)} {prefix}num_waiting={len(scheduler.waiting)}"
            f" {prefix}num_skipped_waiting={len(scheduler.skipped_waiting)}"
            f" {prefix}num_unfinished={scheduler.get_num_unfinished_requests()}"
            f" {prefix}has_finished={'true' if scheduler.has_finished_requests() else 'false'}"
            f" {prefix}num_empty_blocks={num_empty} {prefix}num_cached_blocks={num_queued - num_empty}"
            f" {prefix}num_referenced_blocks={self._config.num_gpu_blocks - num_queued}"
        )
        if not state:
            return text
        requests = scheduler.requests
        return (
            f"{text} {prefix}running={self._place_text(scheduler.running)}"
            f" {prefix}waiting={self._place_text(scheduler.waiting)}"
            f" {prefix}skipped_waiting={self._place_text(scheduler.skipped_waiting)}"
            f" {prefix}requests=[{' '.join(map(self._request_text, requests.values()))}]"
            f"{self._view.state(free_blocks, prefix)} {prefix}tables=[{' '.join(filter(None, map(self._table_text, requests)))}]"
        )

    def _calls_text(self) -> str:
        return "" if self._scripted is None else self._scripted.take_calls()

    def _place_text(self, requests: Any) -> str:
        return self._names_text([request.request_id for request in requests])

    def _request_text(self, request: Any) -> str:
        text = (f"(request id={self._name_texts[request.request_id]} status={self._status_texts[request.status]}"
                f" num_tokens={request.num_tokens} num_computed_tokens={request.num_computed_tokens}")
        if request.num_output_placeholders:
            text += f" num_output_placeholders={request.num_output_placeholders}"
        if request.num_preemptions:
            text += f" num_preemptions={request.num_preemptions}"
        if request.spec_token_ids:
            text += f" spec_tokens={_tokens_text(request.spec_token_ids)}"
        return text + ")"

    def _table_text(self, name: str) -> str:
        """A request's table; nothing without blocks."""
        groups = [tables.get(name, ()) for _, _, tables in self._guard.groups]
        return f"(table request={self._name_texts[name]} blocks={blocks_text(groups)})" if any(groups) else ""
