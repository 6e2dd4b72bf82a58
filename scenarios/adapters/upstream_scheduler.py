"""The scheduler of a real vLLM release, its requests and the outputs of its model, each built from a few settings.

Scheduler, AsyncScheduler, Request, KVCacheManager and ModelRunnerOutput are upstream's classes. The engine around them is
not loaded: the configuration is objects with the attributes that are read, a grammar is an empty object, the caller of
`make_output` is the model.

If upstream iterates a set of request ids, the order differs from process to process (Python salts the hashes of strings).
Pass `finish_requests` one id at a time, and `make_output` sequences: what upstream only iterates keeps the caller's
order.
"""

from __future__ import annotations

import importlib
import inspect
import math
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from kv_cache_target import Group
from session import Unsupported
from upstream_kv_cache import make_kv_cache_config, refusals
from upstream_pool import Modules

_SCHEDULER = "vllm.v1.core.sched.scheduler"
_ASYNC_SCHEDULER = "vllm.v1.core.sched.async_scheduler"

SPECULATIVE_METHODS = ("none", "ngram", "draft_model", "eagle")


class Settings(NamedTuple):
    """The settings of a scheduler; names and meaning are those of vLLM's configuration."""

    num_gpu_blocks: int = 16
    groups: Sequence[Group] = (Group("full", 4),)
    enable_caching: bool = True
    enable_kv_cache_events: bool = True
    hash_block_size: int = 4  # in 0.19.0 the block size of the scheduler as well
    max_model_len: int = 64
    max_num_batched_tokens: int = 64
    max_num_scheduled_tokens: Optional[int] = None  # stands for max_num_batched_tokens
    max_num_seqs: int = 8
    policy: str = "fcfs"  # or priority
    long_prefill_token_threshold: int = 0  # tokens; 0: none
    enable_chunked_prefill: bool = True
    scheduler_reserve_full_isl: bool = True
    speculative_method: str = "none"  # one of SPECULATIVE_METHODS
    num_speculative_tokens: int = 0
    eagle_groups: Sequence[int] = ()  # v0.23
    async_scheduling: bool = False
    max_loras: Optional[int] = None  # None: no LoRA configuration
    kv_load_failure_policy: str = "recompute"  # or fail; of a connector
    take_new_block_ids: bool = True  # each step says which blocks of full attention are new, as for Mamba's layers
    retention_interval: Optional[int] = None  # v0.23


class Published:
    """The publisher of KV events: keeps the events that upstream would send."""

    def __init__(self) -> None:
        self._events: List[Any] = []

    def publish(self, batch: Any) -> None:
        self._events.extend(batch.events)

    def take(self) -> List[Any]:
        """The events since the last call, oldest first (upstream_pool.PoolView prints them)."""
        events, self._events = self._events, []
        return events

    def shutdown(self) -> None:
        pass


def scheduler_type(async_scheduling: bool) -> Any:
    """Upstream's class."""
    if async_scheduling:
        return importlib.import_module(_ASYNC_SCHEDULER).AsyncScheduler
    return importlib.import_module(_SCHEDULER).Scheduler


def make_scheduler(modules: Modules, settings: Settings, connector: Any = None, make: Any = None) -> Any:
    """A real Scheduler, or AsyncScheduler, whose `kv_event_publisher` is a Published.

    connector: what stands for the KV connector of the scheduler's side, if any. It has the methods of
    KVConnectorBase_V1 that upstream calls; one that knows several groups derives from `connector_types().SupportsHMA`.
    make: a subclass of `scheduler_type(settings.async_scheduling)`, which it stands for.
    Raises Unsupported where this release has no such option or refuses.
    """
    if settings.speculative_method not in SPECULATIVE_METHODS:
        raise Unsupported(f"speculative method {settings.speculative_method}")
    module = importlib.import_module(_SCHEDULER)
    use_eagle = settings.speculative_method == "eagle"
    kv_cache_config = make_kv_cache_config(modules, settings.num_gpu_blocks, settings.groups,
                                           settings.eagle_groups if use_eagle else (), settings.retention_interval)
    block_sizes = {"block_size": settings.hash_block_size}
    if "hash_block_size" in inspect.signature(module.Scheduler.__init__).parameters:
        block_sizes = {"block_size": math.lcm(*[group.block_size for group in settings.groups]),
                       "hash_block_size": settings.hash_block_size}
    # Upstream asks its factory, by the name of a class.
    module.KVConnectorFactory = SimpleNamespace(create_connector=lambda **_: connector)
    with refusals(modules):
        scheduler = (make or scheduler_type(settings.async_scheduling))(
            vllm_config=_vllm_config(settings, connector is not None),
            kv_cache_config=kv_cache_config,
            structured_output_manager=SimpleNamespace(
                should_advance=lambda request: False, grammar_bitmask=lambda *_: None),
            mm_registry=SimpleNamespace(supports_multimodal_inputs=lambda _: False),
            log_stats=True,
            **block_sizes,
        )
    scheduler.kv_event_publisher = Published()
    scheduler.needs_kv_cache_zeroing |= settings.take_new_block_ids
    return scheduler


def connector_types() -> Any:
    """Upstream's module with KVConnectorBase_V1, KVConnectorMetadata and SupportsHMA."""
    return importlib.import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")


def _vllm_config(settings: Settings, has_connector: bool) -> Any:
    """The attributes of VllmConfig that Scheduler and AsyncScheduler read."""
    align_sizes = [group.block_size for group in settings.groups if group.align]
    speculative_config = None
    if settings.speculative_method != "none":
        speculative_config = SimpleNamespace(
            num_speculative_tokens=settings.num_speculative_tokens,
            use_eagle=lambda: settings.speculative_method == "eagle",
            uses_draft_model=lambda: settings.speculative_method == "draft_model",
            use_dflash=lambda: False,
        )
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            max_num_scheduled_tokens=settings.max_num_scheduled_tokens,
            policy=settings.policy,
            long_prefill_token_threshold=settings.long_prefill_token_threshold,
            enable_chunked_prefill=settings.enable_chunked_prefill,
            scheduler_reserve_full_isl=settings.scheduler_reserve_full_isl,
            async_scheduling=settings.async_scheduling,
            disable_chunked_mm_input=False,
        ),
        cache_config=SimpleNamespace(
            num_gpu_blocks=settings.num_gpu_blocks,
            enable_prefix_caching=settings.enable_caching,
            # Read only where prefills are cut for Mamba in mode align.
            block_size=(align_sizes or [settings.groups[0].block_size])[0],
            mamba_cache_mode="align" if align_sizes else "none",
        ),
        model_config=SimpleNamespace(
            max_model_len=settings.max_model_len,
            is_encoder_decoder=False,
            enable_return_routed_experts=False,
        ),
        parallel_config=SimpleNamespace(
            data_parallel_index=0,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            pipeline_parallel_size=1,
        ),
        speculative_config=speculative_config,
        lora_config=None if settings.max_loras is None else SimpleNamespace(max_loras=settings.max_loras),
        kv_events_config=SimpleNamespace(enable_kv_cache_events=settings.enable_kv_cache_events, publisher="null"),
        kv_transfer_config=(
            SimpleNamespace(kv_load_failure_policy=settings.kv_load_failure_policy) if has_connector else None
        ),
        ec_transfer_config=None,
        observability_config=SimpleNamespace(kv_cache_metrics=False, enable_mfu_metrics=False),
        use_v2_model_runner=False,
    )


def make_request(modules: Modules, name: str, tokens: List[int], block_hasher: Optional[Callable], max_tokens: int,
                 min_tokens: int = 0, eos_token_id: Optional[int] = None, stop_token_ids: Sequence[int] = (),
                 priority: int = 0, arrival_time: float = 0.0, lora_name: Optional[str] = None, lora_id: int = 0,
                 cache_salt: Optional[str] = None, skip_reading_prefix_cache: bool = False,
                 grammar: bool = False, kv_transfer_params: Optional[Dict[str, Any]] = None) -> Any:
    """A real Request that generates tokens.

    eos_token_id: None also where the end of sequence is ignored, as upstream's input processing has it. grammar: waits
    until `compile_grammar(request)`.
    """
    structured_outputs = SimpleNamespace(all_constraints_none=lambda: False) if grammar else None
    sampling_params = SimpleNamespace(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        eos_token_id=eos_token_id,
        stop_token_ids=list(stop_token_ids),
        skip_reading_prefix_cache=skip_reading_prefix_cache,
        structured_outputs=structured_outputs,
        repetition_detection=None,
        extra_args={"kv_transfer_params": kv_transfer_params} if kv_transfer_params else None,
        logprobs=None,
        num_logprobs=None,
    )
    return modules.make_request(name, tokens, block_hasher, lora_name, lora_id, cache_salt,
                                sampling_params=sampling_params, pooling_params=None, priority=priority,
                                arrival_time=arrival_time)


def compile_grammar(request: Any) -> None:
    """Gives a request that waits for its grammar one."""
    request.structured_output_request.grammar = object()


def make_output(sampled: Dict[str, List[int]], finished_recving: Sequence[str] = (),
                finished_sending: Sequence[str] = (), invalid_block_ids: Sequence[int] = ()) -> Any:
    """A real ModelRunnerOutput.

    sampled: the tokens of each scheduled request, none while its prompt is not done. Upstream cuts these lists where a
    request stops. Sequences stay in their order; upstream declares sets.
    """
    outputs = importlib.import_module("vllm.v1.outputs")
    kv_connector_output = None
    if finished_recving or finished_sending or invalid_block_ids:
        kv_connector_output = outputs.KVConnectorOutput(
            finished_recving=finished_recving, finished_sending=finished_sending, invalid_block_ids=invalid_block_ids)
    return outputs.ModelRunnerOutput(
        req_ids=list(sampled),
        req_id_to_index={name: index for index, name in enumerate(sampled)},
        sampled_token_ids=list(sampled.values()),
        kv_connector_output=kv_connector_output,
    )


def make_drafts(drafts: Dict[str, List[int]]) -> Any:
    """Real DraftTokenIds, for update_draft_token_ids and update_draft_token_ids_in_output."""
    return importlib.import_module("vllm.v1.outputs").DraftTokenIds(list(drafts), list(drafts.values()))
