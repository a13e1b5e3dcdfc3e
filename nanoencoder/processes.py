"""Processes, the device each computes on, and signals that end a run in good order."""
import contextlib
import os
import signal
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class World:
    rank: int
    size: int
    device: torch.device
    dtype: str     # bf16 or fp32

    def sum(self, integers):
        """A list of ints summed over processes. On the CPU, so that no GPU waits for it."""
        return self.sum_tensor(torch.tensor(integers, dtype=torch.int64)).tolist()

    def sum_tensor(self, tensor):
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def floats(self, tensors, summed=False):
        """Scalar tensors of the device as a list of floats, in one transfer; `summed` over processes first."""
        stacked = torch.stack(tensors)
        if summed:
            self.sum_tensor(stacked)
        return stacked.tolist()

    @property
    def threads(self):
        return torch.get_num_threads()

    def of_first(self, function):
        """What a function returns on rank 0, in every process."""
        values = [function() if self.rank == 0 else None]
        if self.size > 1:
            dist.broadcast_object_list(values, device='cpu')
        return values[0]

    def autocast(self):
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == 'bf16')


def pick_device(device='auto', dtype='auto', processes=1):
    """(torch.device, bf16 or fp32) of this process."""
    available = {'cuda': torch.cuda.is_available(), 'cpu': True,
                 'mps': torch.backends.mps.is_available() and processes == 1}  # it serves one process
    if device == 'auto':
        device = next(name for name in ('cuda', 'mps', 'cpu') if available[name])
    if not available[device]:
        raise ValueError(f'device {device}: torch finds none here for {processes} process(es)')
    has_bf16 = device == 'cpu' or device == 'cuda' and torch.cuda.is_bf16_supported(including_emulation=False)
    if dtype == 'auto':
        dtype = 'bf16' if device == 'cuda' and has_bf16 else 'fp32'
    if dtype == 'bf16' and not has_bf16:
        raise ValueError(f'dtype bf16: this {device} has no bf16 arithmetic; take --dtype=fp32')
    if device == 'cuda':  # runs of a grid may share one
        device = f'cuda:{int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()}'
        torch.cuda.set_device(device)
        if dtype == 'bf16':
            torch.set_float32_matmul_precision('high')  # TF32 for what autocast leaves in fp32
    return torch.device(device), dtype


@contextlib.contextmanager
def processes(device='auto', dtype='auto'):
    """The World this process is part of: torchrun's, or alone."""
    rank, size = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
    device, dtype = pick_device(device, dtype, size)
    if size > 1:
        backend = 'cpu:gloo,cuda:nccl' if device.type == 'cuda' else 'gloo'
        dist.init_process_group(backend, timeout=timedelta(minutes=30))  # while rank 0 compares files
    try:
        yield World(rank, size, device, dtype)
    except RuntimeError as error:
        if 'gloo' in str(error):  # which has no class of its own
            raise ConnectionError(f'rank {rank} lost another process, which was killed or says why') from None
        raise
    finally:
        if size > 1:
            if rank == 0:  # torchrun sends it once a process has failed; this one has still to say why
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            # gloo's thread needs the GIL, which the teardown holds, to drop its last work: else a deadlock
            time.sleep(0.5)
            dist.destroy_process_group()


@contextlib.contextmanager
def stop_signals():
    """Collect SIGTERM, SIGINT and SIGHUP (a closed terminal) in a list instead of ending the process."""
    received = []
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]     # of stdout and stderr

    def receive(number, frame):
        received.append(number)
        for stream in terminals:
            if not os.isatty(stream):   # closed: the next print would fail, before the run has saved
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:   # as nohup has it: such a run goes on
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, receive) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
