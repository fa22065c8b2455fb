"""Prove that the other ends of the connections of a process group are its workers, before they are used."""

from __future__ import annotations

import hashlib
import hmac

import torch
import torch.distributed as dist

from trainyard.errors import TrainyardError

PROOF_BYTES = hashlib.sha256().digest_size


class Membership:
    """The secret of a worker group, by which its workers recognize each other.

    gloo and NCCL ask nobody who connects. Each worker sends to each other one a code that only a worker can compute,
    over the very connection that tensors are sent over afterwards. It is of the two ranks and the group, so that it is
    of no use in another place. Whoever can change what is sent between two workers can pass their codes on.

    Args:
        secret: The secret, which the driver has sent to its workers.
        rank: The number of this worker.
        size: How many workers there are.
    """

    def __init__(self, secret: bytes, rank: int, size: int) -> None:
        self._secret, self._rank, self._size = secret, rank, size
        self._groups = 0

    def verify(self, device: torch.device, group: dist.ProcessGroup | None = None) -> None:
        """Send the codes of this worker, and check those of the others. All workers must call this.

        Args:
            device: The device of the group's tensors.
            group: The process group, which has all workers; None for the default one.

        Raises:
            TrainyardError: The other end of a connection is no worker of this group.
        """
        self._groups += 1
        peers = range(self._size)
        codes = b"".join(self._compute(self._rank, peer) for peer in peers)
        sent = torch.frombuffer(bytearray(codes), dtype=torch.uint8).to(device)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=group)
        for peer, code in enumerate(received.cpu().view(self._size, PROOF_BYTES)):
            if not hmac.compare_digest(code.numpy().tobytes(), self._compute(peer, self._rank)):
                raise TrainyardError(
                    f"rank {self._rank} is connected to something else than rank {peer} of its worker group. Another "
                    "process of its network has taken part in the start of the group; nothing that it sent was used."
                )

    def _compute(self, sender: int, receiver: int) -> bytes:
        text = f"process group {self._groups}: rank {sender} to rank {receiver} of {self._size}"
        return hmac.digest(self._secret, text.encode(), "sha256")
