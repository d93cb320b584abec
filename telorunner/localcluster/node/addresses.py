"""The loopback addresses that pods get, each one to one pod at a time."""

import asyncio
import ipaddress
from itertools import islice

# A pool of this size is enough for any machine, and a larger range costs nothing.
MAX_ADDRESSES = 65_000


class AddressPool:
    """The free addresses of a network; one that was given back is given out last."""

    def __init__(self, network: str) -> None:
        """Make a pool of the network's host addresses.

        Raises:
            ValueError: It is no IPv4 network, or not a loopback one.
        """
        parsed = ipaddress.IPv4Network(network)
        if not parsed.is_loopback:
            raise ValueError(f"{network} is no loopback network such as 127.40.7.0/24")
        self._free: asyncio.Queue[str] = asyncio.Queue()
        for address in islice(parsed.hosts(), MAX_ADDRESSES):
            self._free.put_nowait(str(address))

    async def take(self) -> str:
        """Return a free address, waiting for one where all are taken."""
        return await self._free.get()

    def give_back(self, address: str) -> None:
        """Take an address back."""
        self._free.put_nowait(address)
