"""Modules, libraries, the linker, attributes, launches in every form, and their errors."""

from cuda import *

start()
N = 1000
p = allocate(4 * N)
must("cuMemsetD32_v2", p, u32(1), size_t(N))
address, count, addend = u64(p.value), u32(N), u32(41)
arguments = Arguments(address, count, addend)


def values():
    result = (u32 * N)()
    must("cuMemcpyDtoH_v2", result, p, size_t(4 * N))
    show(sorted(set(result)))


def launch(function, grid=(8, 1, 1), block=(128, 1, 1), shared=0, stream=NULL, parameters=arguments.array, extra=NULL):
    return call("cuLaunchKernel", function, *grid, *block, shared, stream, parameters, extra)


# Modules.
module, function, other = pointer(), pointer(), pointer()
call("cuModuleLoadData", ref(module), PTX)
call("cuModuleLoadData", ref(module), NULL)
call("cuModuleLoadData", ref(pointer()), b"\x01\x02\x03\x04" + b"x" * 64)
call("cuModuleGetFunction", ref(function), module, b"add")
for name in [b"nope", b"", b"none", NULL]:
    call("cuModuleGetFunction", ref(other), module, name)
call("cuModuleGetFunction", ref(other), NULL, b"none")
call("cuModuleGetFunction", NULL, module, b"none")
number = u32()
call("cuModuleGetFunctionCount", ref(number), module)
show(number.value)
variable, size, word = u64(), size_t(), u32()
call("cuModuleGetGlobal_v2", ref(variable), ref(size), module, b"counter")
call("cuMemcpyDtoH_v2", ref(word), variable, size_t(4))
show(size.value, word.value)
call("cuModuleGetGlobal_v2", ref(variable), ref(size), module, b"nope")
call("cuModuleGetGlobal_v2", NULL, NULL, module, b"counter")

# What is known of a function.
offset, value, name = size_t(), i32(), c.c_char_p()
for index in [0, 1, 2, 3]:
    offset.value = size.value = 0
    call("cuFuncGetParamInfo", function, size_t(index), ref(offset), ref(size))
    show(offset.value, size.value)
call("cuFuncGetName", ref(name), function)
show(name.value)
for attribute in [0, 1, 2, 3, 4, 7, 8, 9, 16, 99]:
    call("cuFuncGetAttribute", ref(value), attribute, function)
call("cuFuncSetAttribute", function, 8, 1024)
call("cuFuncGetAttribute", ref(value), 8, function)
show(value.value)
call("cuFuncSetAttribute", function, 8, 1 << 30)
call("cuFuncSetAttribute", function, 0, 1)
call("cuFuncSetCacheConfig", function, 1)
call("cuFuncSetCacheConfig", function, 9)
blocks, best = i32(), i32()
for block in [128, 0]:
    call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ref(blocks), function, block, size_t(0))
    show(blocks.value)
call("cuOccupancyMaxPotentialBlockSize", ref(blocks), ref(best), function, NULL, size_t(0), 0)
show(blocks.value, best.value)

# Launches.
stream = pointer()
must("cuStreamCreate", ref(stream), 1)
launch(function)
values()
launch(function, stream=stream)
call("cuStreamSynchronize", stream)
launch(function, stream=pointer(2))
call("cuStreamSynchronize", pointer(2))
values()
launch(function, grid=(0, 1, 1))
launch(function, block=(2048, 1, 1))
launch(function, block=(32, 32, 2))
launch(function, shared=1 << 20)
launch(function, parameters=NULL)
launch(pointer(0x999))
launch(NULL)
launch(function, stream=pointer(0x777000))
block = bytes(address) + bytes(count) + bytes(addend)
buffer, length = c.create_string_buffer(block, len(block)), size_t(len(block))
extra = (pointer * 5)(1, c.addressof(buffer), 2, c.addressof(length), 0)
launch(function, parameters=NULL, extra=extra)
launch(function, extra=extra)
length.value = 8
launch(function, parameters=NULL, extra=extra)
values()
config = LaunchConfig(grid=(8, 1, 1), block=(128, 1, 1))
call("cuLaunchKernelEx", ref(config), function, arguments.array, NULL)
call("cuLaunchKernelEx", NULL, function, arguments.array, NULL)
rows = (c.c_ubyte * 144)()
rows[0] = 8  # CU_LAUNCH_ATTRIBUTE_PRIORITY; the second row is CU_LAUNCH_ATTRIBUTE_IGNORE
config.attributes, config.count = c.addressof(rows), 2
call("cuLaunchKernelEx", ref(config), function, arguments.array, NULL)
call("cuLaunchCooperativeKernel", function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments.array)
for blocks in [1 << 20, 2, 1 << 20]:
    call("cuLaunchCooperativeKernel", function, blocks, 1, 1, 32, 1, 1, 0, NULL, arguments.array)
call("cuCtxSynchronize")
values()

# A program that does not parse.
log = c.create_string_buffer(1024)
options, settings = (u32 * 2)(5, 6), (pointer * 2)(c.addressof(log), 1024)
wrong = b".version 8.0\n.target sm_75\n.address_size 64\n.entry k() { bogus.u32 %r1; }\n"
call("cuModuleLoadDataEx", ref(pointer()), wrong, 2, options, settings)
show(len(log.value) > 0, (settings[1] or 0) >= len(log.value), b"line 4" in log.value)
call("cuModuleLoadDataEx", ref(pointer()), PTX, 1, (u32 * 1)(99), settings)

# Libraries.
library, kernel, parent = pointer(), pointer(), pointer()
call("cuLibraryLoadData", ref(library), PTX, NULL, NULL, 0, NULL, NULL, 0)
call("cuLibraryGetKernel", ref(kernel), library, b"add")
call("cuLibraryGetKernel", ref(other), library, b"nope")
call("cuLibraryGetKernelCount", ref(number), library)
kernels = (pointer * 4)()
call("cuLibraryEnumerateKernels", kernels, 4, library)
show(number.value, [bool(k) for k in kernels])
launch(kernel)
call("cuKernelGetFunction", ref(other), kernel)
launch(other)
call("cuKernelGetName", ref(name), kernel)
show(name.value)
for device in [0, 5]:
    call("cuKernelGetAttribute", ref(value), 0, kernel, device)
call("cuLibraryGetModule", ref(parent), library)
call("cuModuleGetFunction", ref(other), parent, b"add")
launch(other)
again = u64()
call("cuLibraryGetGlobal", ref(variable), ref(size), library, b"counter")
call("cuModuleGetGlobal_v2", ref(again), ref(size), parent, b"counter")
show(variable.value == again.value)
call("cuFuncGetModule", ref(parent), function)
show(parent.value == module.value)
values()
for _ in range(2):
    call("cuLibraryUnload", library)
launch(kernel)
for _ in range(2):
    call("cuModuleUnload", module)
launch(function)

# The linker.
link, image = pointer(), pointer()
call("cuLinkCreate_v2", 0, NULL, NULL, ref(link))
call("cuLinkAddData_v2", link, 1, PTX, size_t(len(PTX) + 1), b"x", 0, NULL, NULL)
call("cuLinkComplete", link, ref(image), ref(size))
call("cuModuleLoadData", ref(module), image)
call("cuModuleGetFunction", ref(function), module, b"add")
for _ in range(2):
    call("cuLinkDestroy", link)
launch(function)
values()
print("PASS kernels")
