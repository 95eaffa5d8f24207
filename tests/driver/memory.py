"""Allocation, sets and copies of every shape, pinned memory, pools, pointer attributes."""

from cuda import *

start()
MIB = 1 << 20
p, q = u64(), u64()
call("cuMemAlloc_v2", ref(p), size_t(0))
call("cuMemAlloc_v2", NULL, size_t(4))
call("cuMemAlloc_v2", ref(p), size_t(MIB))
call("cuMemAlloc_v2", ref(q), size_t(MIB))
base, size = u64(), size_t()
call("cuMemGetAddressRange_v2", ref(base), ref(size), u64(p.value + 100))
show(base.value == p.value, size.value)
call("cuMemGetAddressRange_v2", ref(base), ref(size), u64(0x10))


def at(offset):
    return u64(p.value + offset)


# Sets.
host = (c.c_ubyte * MIB)()
call("cuMemsetD8_v2", p, c.c_ubyte(7), size_t(MIB))
call("cuMemsetD16_v2", at(256), c.c_ushort(0x0102), size_t(10))
call("cuMemsetD32_v2", at(512), u32(0xDEADBEEF), size_t(4))
call("cuMemsetD32_v2", at(1), u32(1), size_t(4))
call("cuMemsetD8_v2", p, c.c_ubyte(1), size_t(MIB + 1))
call("cuMemsetD8_v2", p, c.c_ubyte(1), size_t(0))
call("cuMemsetD2D8_v2", at(4096), size_t(128), c.c_ubyte(9), size_t(100), size_t(3))
call("cuMemsetD2D8_v2", at(4096), size_t(50), c.c_ubyte(9), size_t(100), size_t(3))
call("cuMemsetD2D32_v2", at(8192), size_t(64), u32(3), size_t(4), size_t(5))
call("cuMemsetD32Async", at(600), u32(5), size_t(2), NULL)
call("cuMemsetD32Async", at(601), u32(5), size_t(2), NULL)
call("cuMemsetD16Async", at(601), c.c_ushort(5), size_t(2), NULL)
call("cuMemsetD2D8Async", at(4096), size_t(50), c.c_ubyte(9), size_t(100), size_t(3), NULL)
call("cuMemsetD2D8Async", at(4096), size_t(50), c.c_ubyte(9), size_t(100), size_t(1), NULL)
call("cuMemsetD2D16Async", at(4096), size_t(50), c.c_ushort(9), size_t(26), size_t(3), NULL)
call("cuMemsetD2D32Async", at(4098), size_t(64), u32(9), size_t(2), size_t(3), NULL)
call("cuMemsetD32Async", at(600), u32(5), size_t(1 << 40), NULL)
call("cuMemsetD32Async", at(600), u32(5), size_t(1 << 62), NULL)

# Linear copies.
call("cuMemcpyDtoH_v2", host, p, size_t(MIB))
show(crc(host))
call("cuMemcpyDtoH_v2", host, u64(0x10), size_t(4))
call("cuMemcpyDtoH_v2", NULL, p, size_t(4))
call("cuMemcpyHtoD_v2", p, NULL, size_t(4))
call("cuMemcpyDtoH_v2", host, at(MIB - 2), size_t(4))
call("cuMemcpyDtoD_v2", q, p, size_t(MIB))
call("cuMemcpy", q, at(512), size_t(16))
first, second = (c.c_ubyte * 16)(), (c.c_ubyte * 16)()
call("cuMemcpy", u64(c.addressof(first)), q, size_t(16))
call("cuMemcpy", u64(c.addressof(second)), u64(c.addressof(first)), size_t(16))
freed = allocate(1 << 16)
must("cuMemFree_v2", freed)
call("cuMemcpy", u64(c.addressof(second)), freed, size_t(16))
call("cuMemcpy", freed, u64(c.addressof(second)), size_t(16))
call("cuMemcpyAsync", freed, u64(c.addressof(second)), size_t(16), NULL)
show(bytes(first).hex(), bytes(first) == bytes(second))

# Planes and boxes.
source = (c.c_ubyte * 10000)(*[i % 251 for i in range(10000)])
back = (c.c_ubyte * 10000)()
plane = Copy2D(
    srcX=3, srcY=2, srcType=HOST, srcHost=c.addressof(source), srcPitch=100,
    dstX=5, dstY=1, dstType=DEVICE, dstDevice=p.value, dstPitch=256, width=60, height=20,
)
call("cuMemcpy2D_v2", ref(plane))
plane.width = 98
call("cuMemcpy2D_v2", ref(plane))
plane.width, plane.srcType = 60, 9
call("cuMemcpy2D_v2", ref(plane))
plane = Copy2D(
    srcX=5, srcY=1, srcType=DEVICE, srcDevice=p.value, srcPitch=256,
    dstType=HOST, dstHost=c.addressof(back), dstPitch=64, width=60, height=20,
)
call("cuMemcpy2D_v2", ref(plane))
show(crc(back))
plane.srcType, plane.srcPitch = UNIFIED, 4096
call("cuMemcpy2DUnaligned_v2", ref(plane))
show(crc(back))
box = Copy3D(
    srcX=1, srcY=1, srcZ=1, srcType=HOST, srcHost=c.addressof(source), srcPitch=50, srcHeight=10,
    dstType=DEVICE, dstDevice=q.value, dstPitch=64, dstHeight=12, width=40, height=8, depth=5,
)
call("cuMemcpy3D_v2", ref(box))
box = Copy3D(
    srcType=DEVICE, srcDevice=q.value, srcPitch=64, srcHeight=12,
    dstType=HOST, dstHost=c.addressof(back), dstPitch=40, dstHeight=8, width=40, height=8, depth=5,
)
call("cuMemcpy3D_v2", ref(box))
show(crc(back))

# Pitched allocations.
pitched, pitch = u64(), size_t()
call("cuMemAllocPitch_v2", ref(pitched), ref(pitch), size_t(1000), size_t(10), 4)
show(pitch.value >= 1000)
call("cuMemAllocPitch_v2", ref(pitched), ref(pitch), size_t(1000), size_t(10), 3)

# Pinned memory.
memory, flags = pointer(), u32()
call("cuMemHostAlloc", ref(memory), size_t(100000), 0)
call("cuMemHostGetFlags", ref(flags), memory)
call("cuMemcpyHtoD_v2", p, memory, size_t(100000))
call("cuMemFreeHost", memory)
call("cuMemFreeHost", memory)
call("cuMemHostAlloc", ref(memory), size_t(0), 0)
call("cuMemHostAlloc", ref(memory), size_t(10), 1 << 20)
mine = c.create_string_buffer(8192)
for name, more in [("cuMemHostRegister_v2", (size_t(8192), 0)), ("cuMemHostUnregister", ())]:
    call(name, mine, *more)
    call(name, mine, *more)

# What CUDA says of an address.
kind, number, value = u32(), i32(), u64()
call("cuPointerGetAttribute", ref(kind), 2, at(5))
show(kind.value)
call("cuPointerGetAttribute", ref(kind), 2, u64(c.addressof(source)))
call("cuPointerGetAttribute", ref(value), 3, at(5))
show(value.value == p.value + 5)
call("cuPointerGetAttribute", ref(number), 9, p)
show(number.value)
ids = (u32 * 6)(1, 2, 3, 4, 8, 9)
values = [u64(77) for _ in ids]
places = (pointer * 6)(*[c.addressof(v) for v in values])
call("cuPointerGetAttributes", 6, ids, places, u64(c.addressof(source)))
show(*[v.value for v in values])

# Pools and stream-ordered memory.
pool, stream, threshold = pointer(), pointer(), u64(1 << 20)
must("cuStreamCreate", ref(stream), 1)
call("cuDeviceGetDefaultMemPool", ref(pool), 0)
call("cuMemPoolSetAttribute", pool, 4, ref(threshold))
threshold.value = 0
call("cuMemPoolGetAttribute", pool, 4, ref(threshold))
show(threshold.value)
call("cuMemPoolTrimTo", pool, size_t(0))
call("cuMemPoolTrimTo", NULL, size_t(0))
ordered = u64()
call("cuMemAllocAsync", ref(ordered), size_t(1 << 16), stream)
call("cuMemsetD8Async", ordered, c.c_ubyte(1), size_t(1 << 16), stream)
call("cuMemFreeAsync", ordered, stream)
call("cuMemFreeAsync", ordered, stream)
call("cuMemAllocFromPoolAsync", ref(ordered), size_t(100), pool, stream)
call("cuStreamSynchronize", stream)
call("cuMemFree_v2", ordered)

# What a synchronous copy has brought is there for a stream that does not wait for the default one.
large, last = allocate(32 * MIB), (c.c_ubyte * 4)()
for round_ in range(1, 5):
    content = (c.c_ubyte * (32 * MIB)).from_buffer_copy(bytes([round_]) * (32 * MIB))
    must("cuMemcpyHtoD_v2", large, content, size_t(32 * MIB))
    must("cuMemcpyDtoHAsync_v2", last, u64(large.value + 32 * MIB - 4), size_t(4), stream)
    must("cuStreamSynchronize", stream)
    show(bytes(last).hex())

for address in [p, p, u64(0), at(16)]:
    call("cuMemFree_v2", address)
print("PASS memory")
