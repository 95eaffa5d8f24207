"""Device memory up to its end: what cuMemGetInfo says, when an allocation fails, and that all of it comes back."""

import random

from cuda import *

start()
MIB = 1 << 20


def info():
    free, total = size_t(), size_t()
    must("cuMemGetInfo_v2", ref(free), ref(total))
    return free.value, total.value


def allocate_or_none(size):
    address = u64()
    code = lib.cuMemAlloc_v2(ref(address), size_t(size))
    assert code in (0, 2), code
    return address if code == 0 else None


before, total = info()
# Half, more than the other half, the other half.
half = before // 2 // (2 * MIB) * 2 * MIB
first = allocate_or_none(half)
assert first is not None and info()[0] == before - half
assert allocate_or_none(before - half + 2 * MIB) is None, "more than there is"
assert info()[0] == before - half, "a failure takes nothing"
second = allocate_or_none(before - half - 4 * MIB)
assert second is not None
# The last bytes, one piece at a time, until nothing is left.
small = []
while (address := allocate_or_none(MIB // 2)) is not None:
    small.append(address)
show("pieces", len(small))
assert info()[0] < MIB, info()
# What is freed can be had again at once, also under work that still uses it.
stream = pointer()
must("cuStreamCreate", ref(stream), 1)
must("cuMemsetD8Async", second, c.c_ubyte(1), size_t(before - half - 4 * MIB), stream)
must("cuMemFree_v2", second)
again = allocate_or_none(before - half - 4 * MIB)
assert again is not None, "freed memory is free"
must("cuStreamSynchronize", stream)
for address in [first, again, *small]:
    must("cuMemFree_v2", address)
assert info()[0] == before, (info(), before)
whole = allocate_or_none(before // (2 * MIB) * 2 * MIB)
assert whole is not None, "all of it in one piece"
must("cuMemFree_v2", whole)

# A long life of small and large ones: contents stay, and nothing is lost.
random.seed(5)
live, content = {}, {}
for step in range(3000):
    if live and random.random() < 0.48:
        key = random.choice(list(live))
        got = (c.c_ubyte * 16)()
        must("cuMemcpyDtoH_v2", got, key_address := live.pop(key), size_t(16))
        assert bytes(got) == bytes([content.pop(key)]) * 16, step
        must("cuMemFree_v2", key_address)
    else:
        size = random.choice([16, 1000, 70000, 3 * MIB, 20 * MIB])
        address = allocate_or_none(size)
        if address is None:
            continue
        assert all(address.value + size <= a.value or a.value + 16 <= address.value for a in live.values())
        content[step] = step % 251
        must("cuMemsetD8Async", address, c.c_ubyte(content[step]), size_t(min(size, 4096)), stream)
        must("cuStreamSynchronize", stream)
        live[step] = address
for address in live.values():
    must("cuMemFree_v2", address)
assert info()[0] == before, (info(), before)

# A context's end frees what was allocated in it.
context = pointer()
must("cuCtxCreate_v2", ref(context), 0, 0)
inside = info()[0]
for size in [100, 5 * MIB, 50 * MIB]:
    assert allocate_or_none(size) is not None
must("cuCtxDestroy_v2", context)
assert info()[0] >= inside, (info(), inside)
print("PASS edge")
