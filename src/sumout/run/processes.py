"""Several processes on one run, by JAX's own runtime (`jax.distributed`), which carries all that they tell each other.

Every process runs the same call of `sumout.sample`, and all take the same decisions. Either data are sharded over the
devices of all of them, and each takes part in every step of every chain; or chains are shared out, group by group, and
after every chunk each process gets the draws and states of all. What was drawn is so the same everywhere: each process
has the whole result, and any other number of processes can go on from a checkpoint.

Where processes must not differ, process 0 decides (how many draws until the next chunk, as that depends on the clock)
or they compare: what they were called with when they begin, the states of chains after every chunk.
"""

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import numpy as np

from sumout.errors import OptionError, ProcessError, StoreError
from sumout.threads import attentively, leave_without_farewell

T = TypeVar("T")

DIGEST = 8  # bytes
MOST_WORDS = 4096  # bytes of a message
# What JAX's runtime says where another process is gone.
LOST = ("gloo", "coordination service", "heartbeat", "connection closed", "connection reset", "socket closed")


@dataclass(frozen=True)
class Processes:
    """The processes of a run, as one of them sees them.

    Attributes:
        count: how many there are.
        number: of this one.
        share_chains: whether chains are shared out; else all take part in all.
    """

    count: int = 1
    number: int = 0
    share_chains: bool = False

    @property
    def are_many(self) -> bool:
        """Whether there is more than this one."""
        return self.count > 1

    @property
    def is_first(self) -> bool:
        """Whether this one speaks and writes for all."""
        return self.number == 0

    def own(self, groups: Sequence[T]) -> list[T]:
        """The groups of chains of this process: every `count`-th one; some of them again if there are too few."""
        if not self.share_chains:
            return list(groups)
        slots = -(-len(groups) // self.count)
        return [groups[(slot * self.count + self.number) % len(groups)] for slot in range(slots)]

    def gather(self, own: Sequence[T], num_groups: int) -> list[T]:
        """What all processes have made of their groups, in the order of all groups, as NumPy arrays."""
        if not self.share_chains:
            return list(own)
        leaves, form = jax.tree.flatten(list(own))
        arrays = [np.asarray(leaf) for leaf in leaves]
        content = np.frombuffer(b"".join(array.tobytes() for array in arrays), np.uint8)
        room = np.zeros(1 << (len(content) - 1).bit_length(), np.uint8)  # of few lengths, as each is compiled for
        room[: len(content)] = content
        made = [jax.tree.unflatten(form, _cut(row, arrays)) for row in self._exchange(room)]
        return [made[i % self.count][i // self.count] for i in range(num_groups)]

    def agree(self, count: int, is_asked_to_stop: bool, states: Any) -> int:
        """How many draws come next: as many as process 0 says, none if any process is asked to stop."""
        if not self.are_many:
            return 0 if is_asked_to_stop else count
        checksum = 0
        for leaf in jax.tree.leaves(states):
            checksum = zlib.crc32(np.ascontiguousarray(leaf), checksum)
        said = self._exchange(np.array([count, is_asked_to_stop, checksum], np.uint32))
        if differs := self._differing(said[:, 2]):
            raise ProcessError(
                f"process {differs} has other states of the chains than process 0, though both computed the same: "
                "their machines round differently. Run on machines of one kind, with the same releases of JAX."
            )
        return 0 if said[:, 1].any() else int(said[0, 0])

    def compare(self, call: Mapping[str, Any]) -> None:
        """Refuse a call that is not the same in all processes; the names are the same in any case."""
        said = self._exchange(np.stack([_digest(value) for value in call.values()]))
        for i, name in enumerate(call):
            if differs := self._differing(said[:, i]):
                raise OptionError(
                    f"sample: process {differs} differs from process 0 in {name}. Every process must make the same "
                    "call with the same, whole data; mesh= and shard= say which rows it computes with."
                )

    def hear(self, words: str) -> str:
        """What process 0 says, for all to hear."""
        if not self.are_many:
            return words
        room = np.zeros(MOST_WORDS, np.uint8)
        said = np.frombuffer(words.encode()[:MOST_WORDS], np.uint8)
        room[: len(said)] = said
        return bytes(self._exchange(room)[0]).rstrip(b"\0").decode(errors="ignore")

    def check_seen(self, folder: Any, is_seen: bool) -> None:
        """Refuse a folder that some process does not see."""
        if self.are_many and (differs := self._differing(self._exchange(np.array([is_seen], np.uint8))[:, 0])):
            raise StoreError(
                f"process {differs} does not see {folder}, which process 0 writes to: use a folder that the machines "
                "share."
            )

    @contextmanager
    def ending_together(self) -> Iterator[None]:
        """Say in words that another process is gone, and let the others know if this one fails."""
        try:
            yield
        except BaseException as error:
            if not self.are_many:
                raise
            leave_without_farewell()
            if isinstance(error, ValueError | RuntimeError) and any(word in str(error).lower() for word in LOST):
                raise ProcessError(
                    "another process of this run has ended, so that this one cannot go on; its own last words say why. "
                    "With store= the same call resumes the run, with as many processes or another number."
                ) from error
            raise

    def _differing(self, said: np.ndarray) -> int:
        """The first process that says something else than process 0; 0 if none does."""
        return int(np.argmax((said != said[:1]).reshape(len(said), -1).any(axis=1)))

    def _exchange(self, content: np.ndarray) -> np.ndarray:
        """What every process says, one row each; as long in all."""
        from jax.experimental import multihost_utils  # experimental: other releases may not have it

        return np.asarray(attentively(multihost_utils.process_allgather, content))


ONE_PROCESS = Processes()


def _cut(row: np.ndarray, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays as those, from their bytes one after the other."""
    ends = np.cumsum([array.nbytes for array in like])
    parts = np.split(row[: ends[-1]], ends[:-1])
    return [part.view(array.dtype).reshape(array.shape) for part, array in zip(map(np.copy, parts), like, strict=True)]


def _digest(value: Any) -> np.ndarray:
    """Equal for equal values."""
    digest = hashlib.blake2b(digest_size=DIGEST)
    for path, leaf in jax.tree_util.tree_leaves_with_path(value):
        is_array = hasattr(leaf, "dtype")
        content = np.ascontiguousarray(leaf) if is_array else repr(leaf).encode()
        digest.update(f"{path} {content.shape} {content.dtype}".encode() if is_array else b"")  # pyright: ignore
        digest.update(content)
    return np.frombuffer(digest.digest(), np.uint8)
