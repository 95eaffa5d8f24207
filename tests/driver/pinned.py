"""Pinned memory: copies of every kind from and to it, in and out of order with other work."""

from cuda import *

start()
MIB = 1 << 20
SIZE = 3 * MIB + 12345
device = allocate(4 * MIB)
stream = pointer()
must("cuStreamCreate", ref(stream), 1)


def pinned(size, flags=0):
    memory = pointer()
    must("cuMemHostAlloc", ref(memory), size_t(size), flags)
    return memory, (c.c_ubyte * size).from_address(memory.value)


def offset(memory, by):
    return pointer(memory.value + by)


source, bytes_in = pinned(SIZE)
target, bytes_out = pinned(SIZE, 1)
show(source.value % 4096, sum(bytes_in[:100]), bytes_in[SIZE - 1])
bytes_in[:] = bytes(i * 7 % 251 for i in range(SIZE))

# Whole, synchronous.
call("cuMemcpyHtoD_v2", device, source, size_t(SIZE))
call("cuMemcpyDtoH_v2", target, device, size_t(SIZE))
show(crc(bytes_out))
# Pieces at odd places, in a stream.
c.memset(target, 0, SIZE)
call("cuMemcpyHtoDAsync_v2", u64(device.value + 5), offset(source, 3), size_t(MIB + 1), stream)
call("cuMemsetD8Async", u64(device.value + 100), c.c_ubyte(9), size_t(50), stream)
call("cuMemcpyDtoHAsync_v2", offset(target, 77), device, size_t(2 * MIB), stream)
call("cuStreamSynchronize", stream)
show(crc(bytes_out))
# Beyond the end of either side.
call("cuMemcpyHtoD_v2", u64(device.value + 4 * MIB - 4), source, size_t(8))
call("cuMemcpyDtoHAsync_v2", target, u64(device.value + 4 * MIB - 4), size_t(8), stream)
# Unified addresses find out which side is which.
c.memset(target, 0, SIZE)
call("cuMemcpy", u64(target.value), device, size_t(1000))
call("cuMemcpyAsync", u64(device.value + 1000), u64(source.value + 50), size_t(1000), stream)
call("cuMemcpyAsync", u64(target.value + 5000), u64(device.value + 1000), size_t(1000), stream)
call("cuStreamSynchronize", stream)
call("cuMemcpy", u64(target.value + 9000), u64(source.value), size_t(1000))
show(crc(bytes_out))
# Planes, tight and with gaps.
c.memset(target, 0, SIZE)
for pitch, width in [(640, 640), (640, 100), (4000, 3000)]:
    plane = Copy2D(
        srcType=HOST, srcHost=source.value, srcPitch=pitch,
        dstType=DEVICE, dstDevice=device.value, dstPitch=4096, width=width, height=200,
    )
    call("cuMemcpy2DAsync_v2", ref(plane), stream)
    plane = Copy2D(
        srcType=DEVICE, srcDevice=device.value, srcPitch=4096,
        dstType=HOST, dstHost=target.value, dstPitch=pitch, width=width, height=200,
    )
    call("cuMemcpy2DAsync_v2", ref(plane), stream)
    call("cuStreamSynchronize", stream)
    show(crc(bytes_out))
    call("cuMemcpy2D_v2", ref(plane))
    show(crc(bytes_out))

# An event behind a copy says when its bytes are there.
event = pointer()
must("cuEventCreate", ref(event), 2)
for round_ in range(50):
    must("cuMemsetD8Async", device, c.c_ubyte(round_), size_t(SIZE), stream)
    must("cuMemcpyDtoHAsync_v2", target, device, size_t(SIZE), stream)
    must("cuEventRecord", event, stream)
    while lib.cuEventQuery(event) == 600:
        pass
    assert bytes_out[0] == bytes_out[SIZE // 2] == bytes_out[SIZE - 1] == round_, round_

# A copy reads pinned memory when its stream comes to it: after a host function that writes there.
first = bytes_in[0]
FUNCTION = c.CFUNCTYPE(None, pointer)


@FUNCTION
def change(_):
    bytes_in[0] = (first + 1) % 256


must("cuLaunchHostFunc", stream, change, NULL)
call("cuMemcpyHtoDAsync_v2", device, source, size_t(16), stream)
call("cuMemcpyDtoHAsync_v2", target, device, size_t(16), stream)
call("cuStreamSynchronize", stream)
show(bytes_out[0] == (first + 1) % 256)

# Registered memory of the program's own.
mine = c.create_string_buffer(MIB)
call("cuMemHostRegister_v2", mine, size_t(MIB), 0)
call("cuMemcpyDtoHAsync_v2", mine, device, size_t(MIB), stream)
call("cuStreamSynchronize", stream)
show(crc(mine))
call("cuMemHostUnregister", mine)

# Freed and allocated again it is zero, and another size fits in its place.
call("cuMemFreeHost", target)
call("cuMemFreeHost", target)
for size in [1, 4096, 100000, SIZE]:
    target, bytes_out = pinned(size)
    show(sum(bytes_out[:4096]), bytes_out[size - 1])
    bytes_out[:] = bytes([255]) * size
    call("cuMemcpyDtoH_v2", target, device, size_t(size))
    call("cuMemFreeHost", target)
call("cuMemHostAlloc", ref(target), size_t(1 << 60), 0)
call("cuMemFreeHost", source)
call("cuMemcpyHtoD_v2", device, bytes(16), size_t(16))
print("PASS pinned")
