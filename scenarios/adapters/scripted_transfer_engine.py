"""A copy engine whose progress is commands: contract/scripted/scripted_transfer_engine.h, as upstream's OffloadingHandler."""

from __future__ import annotations

from typing import Any, Dict, List


class Transfer:
    """One transfer that was submitted and is not reported yet."""

    def __init__(self, job_id: int, is_store: bool, num_bytes: int):
        self.job_id = job_id
        self.is_store = is_store
        self.num_bytes = num_bytes
        self.progress = "submitted"

    def is_under_way(self) -> bool:
        return self.progress in ("submitted", "part")


def make_scripted_transfer_engine(worker_module: Any, block_bytes: int) -> Any:
    """worker_module: upstream's, with OffloadingHandler and TransferResult. block_bytes: the bytes that a GPU block counts as."""

    class ScriptedTransferEngine(worker_module.OffloadingHandler):
        def __init__(self) -> None:
            # By job, in the order of submission; reported ones are gone.
            self.transfers: Dict[int, Transfer] = {}
            self._ended: List[Any] = []
            # By job.
            self._reported: Dict[int, Any] = {}

        # ---- What upstream calls ----

        def transfer_async(self, job_id: int, spec: Any) -> bool:
            source, target = spec
            is_store = source.medium() == "GPU"
            gpu = source if is_store else target
            self.transfers[job_id] = Transfer(job_id, is_store, len(gpu.block_ids) * block_bytes)
            return True

        def get_finished(self) -> List[Any]:
            results, self._ended = self._ended, []
            for result in results:
                self.transfers.pop(result.job_id, None)
                self._reported[result.job_id] = result
            return results

        def wait(self, job_ids: Any) -> None:
            for job_id in list(self.transfers):
                if job_id in job_ids:
                    self.advance(job_id, "finished")

        # ---- Commands ----

        def advance(self, job_id: int, progress: str, microseconds: int = 0) -> bool:
            """Sets the progress of a transfer; False if there is none that has not ended.

            microseconds: that it took, if this is its end.
            """
            transfer = self.transfers.get(job_id)
            if transfer is None or not transfer.is_under_way():
                return False
            transfer.progress = progress
            if progress != "part":
                self._ended.append(worker_module.TransferResult(
                    job_id=job_id, success=True, transfer_size=transfer.num_bytes,
                    transfer_time=microseconds / 1e6,
                    transfer_type=("GPU", "CPU") if transfer.is_store else ("CPU", "GPU")))
            return True

        def report_again(self, job_id: int) -> bool:
            """Reports a transfer once more; False if it was not reported."""
            if job_id not in self._reported:
                return False
            self._ended.append(self._reported[job_id])
            return True

    return ScriptedTransferEngine()
