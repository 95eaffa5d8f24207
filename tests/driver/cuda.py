"""The driver API by ctypes, for programs that print what every call answers: the same program must print the same natively
and through a pool."""

import ctypes as c
import zlib

lib = c.CDLL("libcuda.so.1")
NULL = None
u32, u64, i32, size_t, pointer = c.c_uint, c.c_uint64, c.c_int, c.c_size_t, c.c_void_p


def show(*values):
    print("   ", *values)


def call(name, *arguments):
    """Calls a function and prints its answer, under the name without its version."""
    code = getattr(lib, name)(*arguments)
    print(f"{name} {code}")
    return code


def must(name, *arguments):
    """Calls a function that has to succeed."""
    code = getattr(lib, name)(*arguments)
    assert code == 0, f"{name} answers {code}"


def ref(value):
    return c.byref(value)


def crc(buffer):
    return zlib.crc32(bytes(buffer))


class Copy2D(c.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [
        (side + name, kind)
        for side in ("src", "dst")
        for name, kind in [
            ("X", size_t), ("Y", size_t), ("Type", u32), ("Host", pointer), ("Device", u64), ("Array", pointer),
            ("Pitch", size_t),
        ]
    ] + [("width", size_t), ("height", size_t)]


class Copy3D(c.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = [
        (side + name, kind)
        for side in ("src", "dst")
        for name, kind in [
            ("X", size_t), ("Y", size_t), ("Z", size_t), ("Lod", size_t), ("Type", u32), ("Host", pointer),
            ("Device", u64), ("Array", pointer), ("Reserved", pointer), ("Pitch", size_t), ("Height", size_t),
        ]
    ] + [("width", size_t), ("height", size_t), ("depth", size_t)]


class LaunchConfig(c.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", u32 * 3), ("block", u32 * 3), ("shared", u32), ("stream", pointer), ("attributes", pointer), ("count", u32),
    ]


HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4

PTX = b"""
.version 8.0
.target sm_75
.address_size 64
.global .align 4 .u32 counter = 5;
.visible .entry add(.param .u64 p, .param .u32 n, .param .u32 k) {
  .reg .u64 %rd<4>; .reg .u32 %r<8>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [k];
  mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x; mad.lo.u32 %r3, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r3, %r1; @%p1 bra done;
  mul.wide.u32 %rd2, %r3, 4; cvta.to.global.u64 %rd1, %rd1; add.u64 %rd1, %rd1, %rd2;
  ld.global.u32 %r6, [%rd1]; add.u32 %r6, %r6, %r2; st.global.u32 [%rd1], %r6;
done:
  ret;
}
.visible .entry none() { ret; }
"""


def start():
    """A process with the first device's primary context current."""
    must("cuInit", 0)
    context = pointer()
    must("cuDevicePrimaryCtxRetain", ref(context), 0)
    must("cuCtxSetCurrent", context)
    return context


def allocate(bytes_):
    address = u64()
    must("cuMemAlloc_v2", ref(address), size_t(bytes_))
    return address


class Arguments:
    """Kernel parameters as an array of pointers."""

    def __init__(self, *values):
        self.values = values
        self.array = (pointer * len(values))(*[c.addressof(value) for value in values])
