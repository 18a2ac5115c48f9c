"""Collectives of a program on ``torch.distributed``, started asynchronously."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

# Tracing imports it. Its default arguments keep the default process group alive if that exists by
# then.
import torch.distributed.nn

from deeppool.torch.program import Collective, RankProgram, Ranges, slices

#: Content of a program's buffer: a tensor, or one tensor per trained parameter of a layer.
Value = torch.Tensor | list[torch.Tensor]
#: ``isend`` or ``irecv``, the samples, and the other rank.
Message = tuple[Callable[..., Any], torch.Tensor, int]


@dataclass
class Pending:
    """A collective in flight on this rank."""

    works: Sequence[dist.Work]
    finish: Callable[[], Sequence[Value]]
    """Returns its results once it is complete."""

    waiter: Future[None] | None = None
    """Wait on another thread, if any."""

    def is_complete(self) -> bool:
        """Returns whether the collective is complete, without blocking."""
        return (
            self.waiter.done() if self.waiter is not None else all(work.is_completed() for work in self.works)
        )

    def wait(self) -> Sequence[Value]:
        """Waits for the collective and returns its results. On a GPU, the current stream waits."""
        if self.waiter is not None:
            self.waiter.result()
        else:
            _wait_for(self.works)
        return self.finish()


def _wait_for(works: Sequence[dist.Work]) -> None:
    for work in works:
        work.wait()


class Communication:
    """The process groups of a program. Create it on all ranks together.

    Args:
        program: The rank's program.
        polls: Whether collectives are polled by :meth:`Pending.is_complete`.
    """

    #: Whether the tensors have no data.
    is_fake = False

    def __init__(self, program: RankProgram, polls: bool) -> None:
        self._rank = program.rank
        self._waiter: ThreadPoolExecutor | None = None
        # Weak, so that destroy_process_group() destroys them: that joins gloo's threads, which
        # abort the process if they release a tensor while Python exits.
        self._groups: weakref.WeakValueDictionary[tuple[int, ...], dist.ProcessGroup] = (
            weakref.WeakValueDictionary()
        )
        self._connect(program, polls)

    def _connect(self, program: RankProgram, polls: bool) -> None:
        whole = tuple(range(program.world))
        created = {whole}
        if dist.group.WORLD is not None:
            self._groups[whole] = dist.group.WORLD
        # gloo reports a message as complete only after a wait, which a thread does.
        if polls and dist.get_backend() == "gloo":
            self._waiter = ThreadPoolExecutor(1, "deeppool-messages")
        # All ranks create all groups in the same order, as new_group() requires.
        for collective in program.collectives:
            for ranks in map(tuple, map(sorted, collective.groups)):
                if collective.op != "redistribute" and ranks not in created:
                    created.add(ranks)
                    group = dist.new_group(list(ranks))
                    if self._rank in ranks:
                        self._groups[ranks] = group

    def start_all_reduce(self, collective: Collective, values: Sequence[Value]) -> Pending:
        """Starts an all-reduce (sum) of several values in the rank's group.

        They are one message per data type.
        """
        tensors = [tensor for value in values for tensor in (value if isinstance(value, list) else [value])]
        by_type = {
            dtype: [one for one in tensors if one.dtype == dtype]
            for dtype in dict.fromkeys(one.dtype for one in tensors)
        }
        flat = {dtype: torch.cat([one.reshape(-1) for one in of_type]) for dtype, of_type in by_type.items()}
        group = collective.group(self._rank)
        works = [self._all_reduce(whole, group) for whole in flat.values() if whole.numel() > 0]

        def finish() -> list[Value]:
            parts = {
                dtype: iter(torch.split(whole, [one.numel() for one in by_type[dtype]]))
                for dtype, whole in flat.items()
            }

            def summed(tensor: torch.Tensor) -> torch.Tensor:
                return next(parts[tensor.dtype]).view(tensor.shape)

            return [
                [summed(one) for one in value] if isinstance(value, list) else summed(value)
                for value in values
            ]

        return Pending([work for work in works if work is not None], finish)

    def start_redistribution(
        self, number: int, collective: Collective, held: torch.Tensor, shape: tuple[int, ...]
    ) -> Pending:
        """Starts a redistribution of samples, or boxes of them, between ranks.

        Args:
            number: Index of the collective, used as the message tag.
            collective: The redistribution.
            held: This rank's items before the redistribution; an empty tensor if it has none.
            shape: Shape of a sample of the whole tensor.
        """
        nothing = ((0, 0),) * max(len(collective.extents), 1)
        mine = collective.target.get(self._rank, nothing)
        had = collective.source.get(self._rank, nothing)
        if collective.extents:
            held = held.reshape(*_lengths(had), collective.item_elements)
        kept = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(had, mine))
        if kept == mine:
            wanted = held[_within(mine, had)]
        else:
            wanted = held.new_empty((*_lengths(mine), *held.shape[len(mine) :]))
            if all(first < end for first, end in kept):
                wanted[_within(kept, mine)] = held[_within(kept, had)]
        messages: list[Message] = []
        #: Received messages with the places of their items.
        received: list[tuple[torch.Tensor, torch.Tensor]] = []
        for source, target, box in collective.moves:
            if source == self._rank:
                messages.append((dist.isend, held[_within(box, had)].contiguous(), target))
            elif target == self._rank:
                place = wanted[_within(box, mine)]
                message = place if place.is_contiguous() else torch.empty_like(place).contiguous()
                received.append((place, message))
                messages.append((dist.irecv, message, source))
        works = self._exchange(messages, number) if messages else []
        sent = [tensor for _, tensor, _ in messages]

        def finish() -> list[Value]:
            sent.clear()
            for place, message in received:
                if message is not place:
                    place.copy_(message)
            return [_as_samples(wanted, collective, mine, shape)]

        waiter = self._waiter.submit(_wait_for, works) if self._waiter is not None and works else None
        return Pending(works, finish, waiter)

    def sum_over_ranks(self, number: torch.Tensor) -> dist.Work | None:
        """Starts an all-reduce (sum) over all ranks, in place."""
        work: dist.Work | None = dist.all_reduce(number, async_op=True)
        return work

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        """Broadcasts a tensor of one rank to all ranks, in place."""
        dist.broadcast(tensor, src=source)

    def _all_reduce(self, tensor: torch.Tensor, ranks: Sequence[int]) -> dist.Work | None:
        group = self._groups.get(tuple(sorted(ranks)))
        if group is None:
            raise RuntimeError("the process groups of this model were destroyed: create the model after them")
        work: dist.Work | None = dist.all_reduce(tensor, group=group, async_op=True)
        return work

    def _exchange(self, messages: Sequence[Message], tag: int) -> Sequence[dist.Work]:
        return dist.batch_isend_irecv(
            [dist.P2POp(operation, tensor, peer, tag=tag) for operation, tensor, peer in messages]
        )


def _lengths(box: Ranges) -> tuple[int, ...]:
    return tuple(end - first for first, end in box)


def _within(box: Ranges, outer: Ranges) -> tuple[slice, ...]:
    """Returns the index of a box in the tensor that holds another box around it."""
    return slices(tuple((first - start, end - start) for (first, end), (start, _) in zip(box, outer)))


def _as_samples(
    items: torch.Tensor, collective: Collective, box: Ranges, shape: tuple[int, ...]
) -> torch.Tensor:
    """Returns the box of a redistributed array as samples of a layer or its part.

    Args:
        items: The items of the box. With a dimension of addends, that stays.
        shape: Shape of a sample of the whole tensor.
    """
    if not collective.extents:
        return items
    *_, positions, rows, units = collective.extents
    *_, (first, end), _, _ = box
    outer = positions * rows
    dims, before = list(shape), 1
    for index, dim in enumerate(shape):
        # The first dimension that the units divide evenly.
        if outer % before == 0 and dim % (outer // before * units) == 0:
            dims[index] = dim // units * (box[-1][1] - box[-1][0])
            break
        before *= dim
    dims[0] = dims[0] // positions * (end - first)
    return items.reshape(*_lengths(box)[:-3], *dims)


class Unconnected(Communication):
    """Communication of a rank on fake tensors without other ranks.

    Collectives allocate the tensors that they need, and move nothing.
    """

    is_fake = True

    def _connect(self, program: RankProgram, polls: bool) -> None:
        pass

    def sum_over_ranks(self, number: torch.Tensor) -> None:
        return None

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        pass

    def _all_reduce(self, tensor: torch.Tensor, ranks: Sequence[int]) -> None:
        return None

    def _exchange(self, messages: Sequence[Message], tag: int) -> Sequence[dist.Work]:
        return []
