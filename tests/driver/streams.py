"""Devices, contexts, streams, events, host functions: their states, and wrong uses of them."""

from threading import Event, Thread
from time import sleep

from cuda import *

must("cuInit", 0)
number, flags, active = i32(), u32(), i32()
text = c.create_string_buffer(64)
call("cuDeviceGetCount", ref(number))
show(number.value)
for ordinal in [0, 99]:
    call("cuDeviceGet", ref(number), ordinal)
for length in [64, 3]:
    call("cuDeviceGetName", text, length, 0)
    show(text.value)
for place, attribute, device in [(ref(number), 1, 0), (ref(number), 99999, 0), (NULL, 1, 0), (ref(number), 1, 7)]:
    call("cuDeviceGetAttribute", place, attribute, device)


def state():
    call("cuDevicePrimaryCtxGetState", 0, ref(flags), ref(active))
    show(flags.value, active.value)


# No context yet.
state()
current, context, address = pointer(), pointer(), u64()
call("cuCtxGetCurrent", ref(current))
show(current.value)
call("cuCtxGetDevice", ref(number))
call("cuMemAlloc_v2", ref(address), size_t(16))
call("cuCtxSynchronize")
call("cuDevicePrimaryCtxRetain", ref(context), 0)
call("cuCtxSetCurrent", context)
state()
call("cuCtxGetDevice", ref(number))
show(number.value)

# Streams.
stream, other, status = pointer(), pointer(), u32()
least, greatest = i32(), i32()
call("cuStreamCreate", ref(stream), 1)
call("cuStreamCreate", ref(other), 99)
call("cuStreamGetFlags", stream, ref(flags))
show(flags.value)
call("cuCtxGetStreamPriorityRange", ref(least), ref(greatest))
call("cuStreamCreateWithPriority", ref(other), 0, greatest.value)
call("cuStreamGetPriority", other, ref(number))
show(number.value == greatest.value)
for priority in [-100, -1, 100]:
    extreme = pointer()
    call("cuStreamCreateWithPriority", ref(extreme), 0, priority)
    call("cuStreamGetPriority", extreme, ref(number))
    show(number.value)
    must("cuStreamDestroy_v2", extreme)
call("cuStreamGetCtx", stream, ref(current))
show(current.value == context.value)
# One kind of handle given for another.
event = pointer()
must("cuEventCreate", ref(event), 0)
call("cuEventQuery", stream)
call("cuStreamQuery", event)
call("cuEventDestroy_v2", stream)
call("cuStreamDestroy_v2", event)
must("cuEventDestroy_v2", event)
call("cuStreamIsCapturing", stream, ref(status))
show(status.value)
call("cuStreamGetId", stream, ref(address))
call("cuStreamGetDevice", stream, ref(number))
show(number.value)

# Events.
first, second, untimed, milliseconds = pointer(), pointer(), pointer(), c.c_float()
call("cuEventCreate", ref(first), 0)
call("cuEventCreate", ref(first), 64)
call("cuEventCreate", ref(first), 4)
call("cuMemFreeHost", NULL)
must("cuEventCreate", ref(second), 0)
must("cuEventCreate", ref(untimed), 2)
call("cuEventQuery", first)
call("cuEventSynchronize", first)
call("cuEventElapsedTime", ref(milliseconds), first, second)
for event in [first, second, untimed, NULL]:
    call("cuEventRecord", event, stream)
call("cuStreamSynchronize", stream)
call("cuEventElapsedTime", ref(milliseconds), first, second)
show(milliseconds.value >= 0)
call("cuEventElapsedTime_v2", ref(milliseconds), first, untimed)
for event in [first, untimed, NULL]:
    call("cuEventQuery", event)
for handle in [stream, NULL, pointer(0x1234567890)]:
    call("cuStreamQuery", handle)
for event, bits in [(first, 0), (first, 7), (NULL, 0)]:
    call("cuStreamWaitEvent", other, event, bits)
for _ in range(2):
    call("cuEventDestroy_v2", untimed)
call("cuEventQuery", untimed)


def polled_until_done():
    while lib.cuStreamQuery(stream):
        pass


# What a thread has waited for is done for every query that begins later, of events that were polled before as well.
room, polled, late = u64(), pointer(), 0
must("cuMemAlloc_v2", ref(room), size_t(32 << 20))
must("cuEventCreate", ref(polled), 2)
for wait in [lambda: must("cuStreamSynchronize", stream), lambda: must("cuCtxSynchronize"), polled_until_done] * 8:
    must("cuMemsetD8Async", room, 1, size_t(32 << 20), stream)
    must("cuEventRecord", polled, stream)
    lib.cuEventQuery(polled)
    wait()
    late += lib.cuEventQuery(polled) != 0
show(late)
must("cuEventDestroy_v2", polled)
must("cuMemFree_v2", room)

# Host functions, in their order, and with CUDA's answers forbidden to them.
said = []
host = c.CFUNCTYPE(None, pointer)(lambda data: said.append(("host", data)))
callback = c.CFUNCTYPE(None, pointer, i32, pointer)(
    lambda handle, code, data: said.append((handle == stream.value, code, data))
)
for function in [host, NULL]:
    call("cuLaunchHostFunc", stream, function, pointer(42))
for bits in [0, 1]:
    call("cuStreamAddCallback", stream, callback, pointer(43), bits)
call("cuStreamSynchronize", stream)
show(said)

# While one runs, others can be given.
gate = Event()
waiting = c.CFUNCTYPE(None, pointer)(lambda data: said.append(("opened", gate.wait(5))))
call("cuLaunchHostFunc", stream, waiting, NULL)
sleep(0.1)
call("cuLaunchHostFunc", stream, host, pointer(44))
gate.set()
call("cuStreamSynchronize", stream)
show(said[2:])

# What a host function writes to pinned memory is what a copy behind it in the stream takes.
pinned, there, back = pointer(), u64(), u32()
must("cuMemHostAlloc", ref(pinned), size_t(4), 0)
must("cuMemAlloc_v2", ref(there), size_t(4))
word = u32.from_address(pinned.value)


def write(value):
    sleep(0.05)
    word.value = value


writer = c.CFUNCTYPE(None, pointer)(write)
for value in [7, 8]:
    call("cuLaunchHostFunc", stream, writer, pointer(value))
    call("cuMemcpyHtoDAsync_v2", there, pinned, size_t(4), stream)
    call("cuMemcpyDtoHAsync_v2", ref(back), there, size_t(4), stream)
    call("cuStreamSynchronize", stream)
    show(back.value)
must("cuMemFreeHost", pinned)

# A synchronous copy that has returned is there for the streams of all threads, also of those that do not wait for the
# default stream, and also while that still works.
later = c.CFUNCTYPE(None, pointer)(lambda data: sleep(0.1))


def read(seen):
    own, found = pointer(), u32()
    must("cuCtxSetCurrent", context)
    must("cuStreamCreate", ref(own), 1)
    must("cuMemcpyDtoHAsync_v2", ref(found), there, size_t(4), own)
    must("cuStreamSynchronize", own)
    seen.append(found.value)


for value in [21, 22]:
    seen = []
    call("cuLaunchHostFunc", NULL, later, NULL)
    call("cuMemcpyHtoD_v2", there, ref(u32(value)), size_t(4))
    readers = [Thread(target=read, args=(seen,)) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    show(seen)
must("cuMemFree_v2", there)

# The stack of contexts.
created, inside = pointer(), u64()
call("cuCtxCreate_v2", ref(created), 0, 0)
call("cuCtxGetCurrent", ref(current))
show(current.value == created.value)
call("cuMemAlloc_v2", ref(inside), size_t(100))
call("cuCtxPopCurrent_v2", ref(current))
show(current.value == created.value)
call("cuCtxGetCurrent", ref(current))
show(current.value == context.value)
for handle in [created, created, context]:
    call("cuCtxDestroy_v2", handle)
call("cuMemFree_v2", inside)
call("cuCtxSetCurrent", pointer(0x55))
call("cuCtxPushCurrent_v2", NULL)
limit = size_t()
call("cuCtxSetLimit", 1, size_t(1 << 21))
call("cuCtxGetLimit", ref(limit), 1)
show(limit.value)
call("cuCtxGetLimit", ref(limit), 88)
call("cuCtxGetCacheConfig", ref(flags))
show(flags.value)
call("cuStreamDestroy_v2", stream)
for name in ["cuStreamSynchronize", "cuStreamDestroy_v2"]:
    call(name, stream)
call("cuStreamDestroy_v2", NULL)

# Errors have names.
name = c.c_char_p()
for code in [0, 700, 99999]:
    call("cuGetErrorName", code, ref(name))
    show(name.value)

# A reset ends everything in the primary context; a new life begins under the same handle.
call("cuDevicePrimaryCtxReset_v2", 0)
call("cuCtxSynchronize")
state()
again = pointer()
call("cuDevicePrimaryCtxRetain", ref(again), 0)
call("cuCtxSetCurrent", again)
call("cuCtxSynchronize")
call("cuMemAlloc_v2", ref(address), size_t(64))
call("cuStreamCreate", ref(stream), 0)
call("cuStreamSynchronize", stream)
call("cuEventQuery", first)
for _ in range(2):
    call("cuDevicePrimaryCtxRelease_v2", 0)
print("PASS streams")
