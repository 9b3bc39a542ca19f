"""Processes that work together: NCCL becomes gloo on this machine, and each meeting of the ranks is told, so
that the conductor sees who waits for whom."""

from __future__ import annotations

import functools
import os

from . import pretend
from .tell import CannotRehearse, once, place_in_script, tell

_MEETINGS = """all_reduce broadcast reduce all_gather all_gather_into_tensor _all_gather_base gather scatter
reduce_scatter reduce_scatter_tensor _reduce_scatter_base all_to_all all_to_all_single barrier
monitored_barrier broadcast_object_list all_gather_object gather_object scatter_object_list
all_reduce_coalesced all_gather_coalesced send recv""".split()
_said: dict = {}  # process group (or None for the default one) -> the backend that the script asked for
_inside = {"depth": 0, "n": 0, "ddp": False}


def install(torch: object) -> None:
    """NCCL is there."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    _init(dist, c10d)
    _groups(dist, c10d)
    dist.is_nccl_available = c10d.is_nccl_available = lambda: True
    torch.cuda.nccl.version = lambda: (2, 27, 3)
    for name in _MEETINGS:
        made = getattr(c10d, name, None)
        if made is not None:
            wrapped = _meeting(name, made, dist)
            setattr(c10d, name, wrapped)
            if hasattr(dist, name):
                setattr(dist, name, wrapped)
    _data_parallel(torch)
    _refused(torch, dist)
    _norms(torch)


def ddp() -> bool:
    """Does a backward of this process meet the others?"""
    return bool(_inside["ddp"])


def meet(op: str, what: str, call: object, at: str = "") -> object:
    """Do something in which this rank may wait for the others, and tell when it begins and ends."""
    if _inside["depth"]:
        return call()
    _inside["depth"] += 1
    _inside["n"] += 1
    tell("into", n=_inside["n"], op=op, what=what, at=at or place_in_script())
    try:
        return call()
    finally:
        _inside["depth"] -= 1
        tell("out", n=_inside["n"])


def _init(dist: object, c10d: object) -> None:
    real = c10d.init_process_group

    @functools.wraps(real)
    def init_process_group(  # noqa: PLR0917  # as torch's
        backend: object = None,
        init_method: object = None,
        timeout: object = None,
        world_size: int = -1,
        rank: int = -1,
        store: object = None,
        group_name: str = "",
        pg_options: object = None,
        device_id: object = None,
        **more: object,
    ) -> None:
        said = str(backend).lower() if backend else "nccl"
        _said[None] = "nccl" if "nccl" in said else said
        if device_id is not None:
            pretend.place(device_id)
        by_env = init_method in (None, "env://") and store is None
        if (init_method is not None and str(init_method).startswith("env://")) or by_env:
            if by_env and rank == -1 and "RANK" in os.environ:
                rank = int(os.environ["RANK"])
            if by_env and world_size == -1 and "WORLD_SIZE" in os.environ:
                world_size = int(os.environ["WORLD_SIZE"])
            if "MASTER_ADDR" in os.environ and rank >= 0 and world_size > 0:
                init_method = _here()
        elif str(init_method).startswith("tcp://"):
            init_method = _here()
        expected = int(os.environ.get("STOKER_REHEARSE") or 1)
        if world_size > expected:
            raise CannotRehearse(
                f"the script needs {world_size} ranks, but the rehearsal simulates {expected} GPUs: "
                f"stoker run --rehearse {world_size}"
            )
        tell("dist", rank=rank, world=world_size, backend=_said[None])
        kwargs = {"timeout": timeout} if timeout is not None else {}
        meet(
            "init_process_group",
            "",
            lambda: real(
                "gloo" if "nccl" in said else backend,
                init_method=init_method,
                world_size=world_size,
                rank=rank,
                store=store,
                group_name=group_name,
                **kwargs,
            ),
        )
        tell("joined", rank=dist.get_rank(), world=dist.get_world_size())

    c10d.init_process_group = dist.init_process_group = init_process_group


def _here() -> str:
    return (
        f"tcp://127.0.0.1:{os.environ.get('STOKER_REHEARSE_PORT') or os.environ.get('MASTER_PORT', '29500')}"
    )


def _groups(dist: object, c10d: object) -> None:
    new, get = c10d.new_group, c10d.get_backend

    def new_group(
        ranks: object = None,
        timeout: object = None,
        backend: object = None,
        pg_options: object = None,
        *args: object,
        **kwargs: object,
    ) -> object:
        said = str(backend).lower() if backend else _said.get(None, "gloo")
        kwargs.pop("device_id", None)
        made = meet(
            "new_group",
            str(ranks),
            lambda: new(ranks, timeout, "gloo" if "nccl" in said else backend, None, *args, **kwargs),
        )
        _said[made] = said
        return made

    def get_backend(group: object = None) -> str:
        real = get(group)
        return _said.get(group if group in _said else None, real)

    c10d.new_group = dist.new_group = new_group
    c10d.get_backend = dist.get_backend = get_backend


def _meeting(name: str, real: object, dist: object) -> object:
    @functools.wraps(real)
    def call(*args: object, **kwargs: object) -> object:
        if _inside["depth"] or not dist.is_initialized():
            return real(*args, **kwargs)
        kwargs.pop("device_ids", None) if name == "barrier" else None
        tensors = pretend.tensors_in(args) + pretend.tensors_in(kwargs)
        group = kwargs.get("group")
        if "nccl" in _said.get(group if group in _said else None, ""):
            _of_nccl(tensors)
            if name == "monitored_barrier":
                raise RuntimeError("monitored_barrier is only implemented for GLOO backend.")
        what = f"{list(tensors[0].shape)} {str(tensors[0].dtype).replace('torch.', '')}" if tensors else ""
        args, kwargs, after = _mean(args, kwargs, dist, tensors, group)
        out = meet(name, what, lambda: real(*args, **kwargs))
        return after(out)

    return call


def _of_nccl(tensors: list) -> None:
    for tensor in tensors:
        where = pretend.place_of(tensor)
        if where == pretend.CPU:
            raise RuntimeError("No backend type associated with device type cpu")
        if isinstance(where, int):
            uses(where)


def uses(where: int) -> None:
    """This rank does its work on that GPU."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [each.strip() for each in seen.split(",")] if seen else []
    once("device", where, gpu=names[where] if where < len(names) else str(where))


def _mean(args: tuple, kwargs: dict, dist: object, tensors: list, group: object) -> tuple:
    """gloo has no mean: the sum is divided."""
    average = getattr(dist.ReduceOp, "AVG", None)
    if average is None or not any(
        each == average
        for each in (*args, *kwargs.values())
        if isinstance(each, (type(average), dist.ReduceOp))
    ):
        return args, kwargs, lambda out: out
    args = tuple(dist.ReduceOp.SUM if isinstance(a, (type(average), dist.ReduceOp)) else a for a in args)
    kwargs = {
        k: dist.ReduceOp.SUM if isinstance(v, (type(average), dist.ReduceOp)) else v
        for k, v in kwargs.items()
    }
    kwargs["async_op"], later = False, kwargs.get("async_op", False)

    def after(out: object) -> object:
        with pretend.off(), pretend.torch.no_grad():
            tensors[0].div_(dist.get_world_size(group)) if tensors[0].is_floating_point() else None
        return _Done() if later else out

    return args, kwargs, after


class _Done:
    def wait(self, *args: object) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def _data_parallel(torch: object) -> None:
    from torch.nn.parallel import DistributedDataParallel as Ddp

    init = Ddp.__init__

    @functools.wraps(init)
    def begin(self: object, module: object, *args: object, **kwargs: object) -> None:
        _inside["ddp"] = True
        for parameter in module.parameters():
            where = pretend.place_of(parameter)
            if isinstance(where, int):
                uses(where)
            elif (
                where == pretend.CPU
                and not args
                and kwargs.get("device_ids") is None
                and "nccl" in _said.get(None, "")
            ):
                raise RuntimeError("No backend type associated with device type cpu")
        meet(
            "DistributedDataParallel(...)",
            f"{sum(p.numel() for p in module.parameters())} parameters",
            lambda: init(self, module, *args, **kwargs),
        )
        once("ddp")

    Ddp.__init__ = begin


def _refused(torch: object, dist: object) -> None:
    """What has no meaning here, or no counterpart in gloo."""
    from torch.distributed import device_mesh

    def no_mesh(*args: object, **kwargs: object) -> None:
        raise CannotRehearse("device meshes (FSDP2, tensor and pipeline parallelism) cannot be rehearsed")

    device_mesh.DeviceMesh.__init__ = no_mesh
    device_mesh.init_device_mesh = no_mesh
    if hasattr(dist, "init_device_mesh"):
        dist.init_device_mesh = no_mesh
    from .late import when_imported

    when_imported(
        "torch.distributed.fsdp", lambda fsdp: setattr(fsdp.FullyShardedDataParallel, "__init__", _no_fsdp)
    )


def _no_fsdp(*args: object, **kwargs: object) -> None:
    raise CannotRehearse("FSDP cannot be rehearsed: it needs the memory and the collectives of GPUs")


def _norms(torch: object) -> None:
    """SyncBatchNorm has kernels of the GPU only."""
    from torch.nn.modules import batchnorm

    def forward(self: object, input: object) -> object:
        if pretend.place_of(input) == pretend.CPU:
            raise ValueError("SyncBatchNorm expected input tensor to be on cuda")
        once("syncbn")
        return batchnorm._BatchNorm.forward(self, input)

    torch.nn.SyncBatchNorm.forward = forward
