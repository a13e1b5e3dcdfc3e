"""Processes, the device each of them computes on, and the signals that end a run in good order."""
import contextlib
import importlib.util
import os
import signal
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from nanoencoder.settings import ending_signals


@dataclass(frozen=True)
class World:
    rank: int
    size: int
    device: torch.device
    dtype: str     # bf16 or fp32

    def sum(self, integers):
        """Sum a list of ints over processes, on the CPU, so that no GPU waits for it."""
        tensor = torch.tensor(integers, dtype=torch.int64)
        return self.sum_tensor(tensor).tolist()

    def sum_tensor(self, tensor):
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def floats(self, tensors, summed=False):
        """Bring scalar tensors from the device as floats, in one transfer; `summed` over processes first."""
        stacked = torch.stack(tensors)
        if summed:
            self.sum_tensor(stacked)
        return stacked.tolist()

    def of_first(self, function):
        """What a function returns on rank 0, in every process."""
        values = [function() if self.rank == 0 else None]
        if self.size > 1:
            dist.broadcast_object_list(values, device='cpu')
        return values[0]

    def autocast(self):
        is_on = self.dtype == 'bf16'
        return torch.autocast(self.device.type, torch.bfloat16, enabled=is_on)


def place_in_node():
    """Return (this process's number on its node, how many run there), as torchrun says. Where a launcher does
    not say how many, each process is alone: what a node must do once, all of them do."""
    if 'LOCAL_WORLD_SIZE' not in os.environ:
        return 0, 1
    return int(os.environ['LOCAL_RANK']), int(os.environ['LOCAL_WORLD_SIZE'])


def unsharded(tensor):
    """Return a tensor whole: one that FSDP has sharded, a DTensor, is gathered from all processes."""
    if hasattr(tensor, 'full_tensor'):      # to import DTensor takes most of a second
        return tensor.full_tensor()
    return tensor


def sharded_as(tensor, values):
    """Return values, which every process has whole, sharded as a tensor is, or as they are."""
    if hasattr(tensor, 'placements'):
        from torch.distributed.tensor import distribute_tensor
        return distribute_tensor(values, tensor.device_mesh, tensor.placements, src_data_rank=None)
    return values


def processor():
    """Name the CPU and the widest instructions that torch uses: where both are the same, so are bits."""
    facts = getattr(torch.cpu, 'get_capabilities', dict)()      # torch 2.11 may have none
    return f'{facts.get("cpu_name", "a CPU")}, {torch.backends.cpu.get_cpu_capability()}'


def pick_device(device='auto', dtype='auto', processes=1):
    """(torch.device, bf16 or fp32) of this process."""
    available = ['cpu']
    if torch.backends.mps.is_available() and processes == 1:    # it serves one process
        available.append('mps')
    if torch.cuda.is_available():
        available.append('cuda')
    if device == 'auto':
        device = available[-1]
    if device not in available:
        raise ValueError(f'device {device}: torch finds none here for {processes} process(es)')
    has_bf16 = device == 'cpu'
    if device == 'cuda':
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    if dtype == 'auto':
        dtype = 'bf16' if device == 'cuda' and has_bf16 else 'fp32'
    if dtype == 'bf16' and not has_bf16:
        raise ValueError(f'dtype bf16: this {device} has no bf16 arithmetic; take --dtype=fp32')
    if device == 'cuda':
        number = int(os.environ.get('LOCAL_RANK', 0))
        device = f'cuda:{number % torch.cuda.device_count()}'   # runs of a grid may share one
        torch.cuda.set_device(device)
        if dtype == 'bf16':
            torch.set_float32_matmul_precision('high')  # TF32 for what autocast leaves in fp32
    return torch.device(device), dtype


def has_fa3():
    """Whether FlashAttention 3 is installed. Before 2.13 torch has no backward pass of it."""
    return torch.__version__ >= '2.13' and importlib.util.find_spec('flash_attn_interface') is not None


def choose_flash_attention(device, fa3=True):
    """Have attention in segments of several lengths computed on CUDA by FA3, if it may be, is installed and
    the GPU is one of Hopper's; else by FA2, which torch has. Returns its name, '' without CUDA."""
    if device.type != 'cuda':
        return ''
    if fa3 and has_fa3() and torch.cuda.get_device_capability(device) == (9, 0):
        torch.nn.attention.activate_flash_attention_impl('FA3')
        return 'FA3'
    return 'FA2'


@contextlib.contextmanager
def processes(device, dtype='auto'):
    """Join the other processes of torchrun, if there are any, and give the World that they make."""
    rank = int(os.environ.get('RANK', 0))
    size = int(os.environ.get('WORLD_SIZE', 1))
    device, dtype = pick_device(device, dtype, size)
    if size > 1:
        backend = 'cpu:gloo,cuda:nccl' if device.type == 'cuda' else 'gloo'
        dist.init_process_group(backend, timeout=timedelta(minutes=30))  # rank 0 compares large files
    try:
        yield World(rank, size, device, dtype)
    except RuntimeError as error:
        if 'gloo' in str(error):  # it has no class of its own
            raise ConnectionError(f'rank {rank} lost another process, which was killed or says why') from None
        raise
    finally:
        if size > 1:
            if rank == 0:  # torchrun sends it once a process has failed; rank 0 has still to say why
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            # gloo's thread needs the GIL, which the teardown holds, to drop its last work: else a deadlock
            time.sleep(0.5)
            dist.destroy_process_group()


@contextlib.contextmanager
def stop_signals():
    """Collect signals that ask the process to end in a list: the run then saves and ends by itself."""
    received = []
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]  # stdout and stderr

    def receive(number, frame):
        received.append(number)
        for stream in terminals:
            if not os.isatty(stream):   # closed: the next print would fail, before the run has saved
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)

    before = {number: signal.signal(number, receive) for number in ending_signals()}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
