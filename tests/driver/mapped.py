"""Kernels and sets on pinned memory: only where the program shares it with the device."""

from cuda import *

start()
COUNT = 100000
module, add = pointer(), pointer()
must("cuModuleLoadData", ref(module), PTX)
must("cuModuleGetFunction", ref(add), module, b"add")
can = i32()
must("cuDeviceGetAttribute", ref(can), 19, 0)
show(can.value)
memory, at, flags = pointer(), u64(), u32()
must("cuMemHostAlloc", ref(memory), size_t(4 * COUNT), 2)
if call("cuMemHostGetDevicePointer_v2", ref(at), memory, 0) == 801:
    print("PASS mapped")
    raise SystemExit
call("cuMemHostGetDevicePointer_v2", ref(at), pointer(memory.value + 100), 0)
show(at.value - memory.value)
base, size = u64(), size_t()
call("cuMemGetAddressRange_v2", ref(base), ref(size), at)
show(base.value - memory.value, size.value)
call("cuMemHostGetDevicePointer_v2", ref(at), memory, 1)
call("cuMemHostGetDevicePointer_v2", ref(at), pointer(16), 0)
call("cuMemHostGetFlags", ref(flags), memory)
show(flags.value)
must("cuMemHostGetDevicePointer_v2", ref(at), memory, 0)
words = (u32 * COUNT).from_address(memory.value)
words[:] = range(COUNT)


def launch(address, amount):
    arguments = Arguments(u64(address), u32(COUNT), u32(amount))
    call("cuLaunchKernel", add, COUNT // 128 + 1, 1, 1, 128, 1, 1, 0, NULL, arguments.array, NULL)


launch(at.value, 5)
call("cuCtxSynchronize")
show(all(word == i + 5 for i, word in enumerate(words)))
# The host pointer itself, as unified addressing has it; the program writes between two launches.
words[7] = 1000
launch(memory.value, 1)
call("cuCtxSynchronize")
show(words[7], words[8], words[COUNT - 1])
call("cuMemsetD32_v2", at, u32(3), size_t(10))
call("cuCtxSynchronize")
show(words[9], words[10])
device = allocate(4 * COUNT)
call("cuMemcpyDtoD_v2", device, at, size_t(4 * COUNT))
call("cuMemsetD8_v2", at, c.c_ubyte(0), size_t(4 * COUNT + 1))
call("cuMemcpyDtoH_v2", memory, device, size_t(4 * COUNT))
show(words[9], words[10])
kind, value = u32(), u64()
for attribute, place in [(2, kind), (3, value), (4, value), (13, kind), (16, kind)]:
    call("cuPointerGetAttribute", ref(place), attribute, u64(memory.value + 8))
    show(place.value - memory.value if place is value else place.value & 0xff)
call("cuMemFreeHost", memory)
call("cuMemHostGetDevicePointer_v2", ref(at), memory, 0)
print("PASS mapped")
