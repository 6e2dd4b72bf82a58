"""The scheduler and a synchronous connector of a real vLLM release driven by the commands of
contract/connectors/synchronous/files_facet.h.

What scheduler_commands.py says of the scheduler holds; of the connector, what corrected_synchronous_connector.py says.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, FrozenSet, List, Sequence

from engine_target import Config, Example, World
from line_language import print_integers, print_text
from scheduler_commands import UpstreamScheduler
from scripted_kv_cache import symbols_of
from scripted_storage import ScriptedStorage
from scripted_connector import block_ids_text
from upstream_pool import Modules
from upstream_scheduler import make_output
from upstream_synchronous_connector import FileCopy, Run, SynchronousConnectors


class UpstreamSynchronousConnector(UpstreamScheduler):
    """A scheduler with its connector, and the workers of all ranks, which take steps in the order of planning.

    A file that fails ends this engine, as upstream's: another one starts over the same storage.
    """

    has_workers = True
    accepts_right_drafts_alone = True  # their KV is there

    def __init__(self, modules: Modules, config: Config, world: World, uncorrected: FrozenSet[str] = frozenset()):
        self._uncorrected = uncorrected
        self._storage = ScriptedStorage()
        self._num_engine_starts = 0
        self._start_engine(modules, config, world)

    def _start_engine(self, modules: Modules, config: Config, world: World) -> None:
        self._num_engine_starts += 1
        self._connectors = SynchronousConnectors(modules, config, self._storage, self._uncorrected)
        self._runs: Deque[List[Run]] = deque()  # of each step in flight
        super().__init__(modules, config, world, self._uncorrected)

    def _make_connector(self) -> Any:
        return self._connectors.scheduler

    # ---- Steps ----

    def schedule(self) -> str:
        answer = super().schedule()
        if len(self._scheduler.in_flight) > len(self._runs):
            self._runs.append(self._planned_runs(self._scheduler.in_flight[-1].output))
        return answer

    def _planned_runs(self, output: Any) -> List[Run]:
        """Records what is known now: requests may end before the step comes back."""
        cached = output.scheduled_cached_reqs
        first_tokens = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        first_tokens.update(zip(cached.req_ids, cached.num_computed_tokens))
        scheduler = self._scheduler
        runs = []
        for name, num_tokens in output.num_scheduled_tokens.items():
            first_token = first_tokens[name]
            drafts = output.scheduled_spec_decode_tokens.get(name, [])
            end = first_token + num_tokens - len(drafts)
            tokens = [*scheduler.requests[name].all_token_ids[first_token:end], *drafts]
            runs.append(Run(first_token, tokens, scheduler.kv_cache_manager.get_block_ids(name)))
        return runs

    def _run_step(self, sampled: Dict[str, list]) -> str:
        connectors = self._connectors
        try:
            kv_connector_output = connectors.run(self._scheduler.in_flight[0].output, self._runs.popleft())
        except OSError:
            if "file_errors" in self._uncorrected:
                raise
            self._start_engine(self._modules, self._config, self._world)
            file = connectors.report.file
            failed = (f"(failed request={self._name_texts[file.request]}{' store=true' if file.is_store else ''}"
                      f" layer={file.layer} folder={print_text(file.folder)})")
            return f"error=none{self._files_report_text(connectors)} failed=[{failed}]"
        output = make_output(sampled)
        output.kv_connector_output = kv_connector_output
        return f"{self._take(output)}{self._files_report_text(connectors)} failed=[]"

    # ---- Commands (contract/connectors/synchronous/files_facet.h) ----

    def write_entry(self, tokens, num_files) -> str:
        if not self._keeps_files() or num_files > self._num_layers():
            return "error=not_in_config"
        if len(tokens) % self._config.groups[0].block_size:
            return "error=bad_range"
        folder = self._connectors.folder_name(tokens)
        self._storage.make_folder(folder)
        for layer in range(num_files):
            self._storage.put_file(folder, layer, list(symbols_of(layer, tokens)))
        return "error=none"

    def remove_entry(self, tokens) -> str:
        if not self._keeps_files():
            return "error=not_in_config"
        return self._error_unless(self._storage.remove_folder(self._connectors.folder_name(tokens)))

    def remove_file(self, tokens, layer) -> str:
        if not self._has_layer(layer):
            return "error=not_in_config"
        return self._error_unless(self._storage.remove_file(self._connectors.folder_name(tokens), layer))

    def truncate_file(self, tokens, layer) -> str:
        if not self._has_layer(layer):
            return "error=not_in_config"
        return self._error_unless(self._storage.truncate_file(self._connectors.folder_name(tokens), layer))

    def fail_next_file(self, layer, operation) -> str:
        if not self._has_layer(layer):
            return "error=not_in_config"
        self._storage.fail_next(layer, operation)
        return "error=none"

    def _keeps_files(self) -> bool:
        return isinstance(self._config.connector, Example)

    def _num_layers(self) -> int:
        return self._config.ranks * self._config.connector.num_layers

    def _has_layer(self, layer: int) -> bool:
        return self._keeps_files() and layer < self._num_layers()

    @staticmethod
    def _error_unless(was_there: bool) -> str:
        return "error=none" if was_there else "error=unknown_key"

    # ---- Answers ----

    def _plan_text(self, output: Any) -> str:
        meta = output.kv_connector_metadata
        transfers = [
            f"(transfer request={self._name_texts[transfer.request]}{' store=true' if transfer.is_store else ''}"
            f" folder={print_text(transfer.folder)} num_tokens={transfer.num_tokens}"
            f" blocks={print_integers(transfer.blocks)})"
            for transfer in self._connectors.transfers(meta)
        ]
        fills = [f"(fill request={self._name_texts[name]} num_tokens={num_tokens} blocks={block_ids_text(blocks)})"
                 for name, (blocks, num_tokens) in self._connectors.fills(meta)]
        return f" file_transfers=[{' '.join(transfers)}] fills=[{' '.join(fills)}]"

    def _files_report_text(self, connectors: SynchronousConnectors) -> str:
        report = connectors.report
        filled = [f"(filled request={self._name_texts[name]} layer={layer} blocks={print_integers(blocks)})"
                  for name, layer, blocks in report.filled]
        return (f" loaded={self._files_text(report.loaded)} saved={self._files_text(report.saved)}"
                f" filled=[{' '.join(filled)}]")

    def _files_text(self, files: Sequence[FileCopy]) -> str:
        texts = [f"(file request={self._name_texts[file.request]} layer={file.layer} folder={print_text(file.folder)}"
                 f" blocks={print_integers(file.blocks)} symbols={print_integers(file.symbols)})" for file in files]
        return f"[{' '.join(texts)}]"

    # ---- What is observed ----

    def observe(self, state: bool) -> str:
        text = f"{super().observe(state)} num_engine_starts={self._num_engine_starts}"
        if not state:
            return text
        folders = " ".join(map(print_text, self._storage.folders()))
        files = " ".join([
            f"(stored folder={print_text(file.folder)} layer={file.layer}"
            + (" whole=false symbols=[])" if file.symbols is None else f" symbols={print_integers(file.symbols)})")
            for file in self._storage.files()
        ])
        symbols = " ".join(map(print_integers, self._connectors.symbols()))
        return (f"{text} filled_requests={self._names_text(self._connectors.filled_requests())} folders=[{folders}]"
                f" files=[{files}] symbols=[{symbols}]")
