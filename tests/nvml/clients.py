"""What people look at GPUs with, on softcuda's NVML: nvidia-ml-py, gpustat and nvitop.

    clients.py NVML DRIVER      libsoftnvml.so and libsoftcuda.so
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

FLEET = """
[[device]]
name = "First"
memory = "512M"
pci = "0000:3b:00.0"
uuid = "GPU-5a000000-0000-4000-8000-000000000010"
[[device]]
name = "Second"
memory = "1G"
[[device.mig]]
count = 2
profile = "3g.20gb"
memory = "256M"
uuid = "MIG-5a000000-0000-4000-8000-000000000020"
"""


def by_bindings():
    import pynvml

    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 2
    first, second = (pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    assert pynvml.nvmlDeviceGetName(first) == "First"
    assert pynvml.nvmlDeviceGetUUID(first) == "GPU-5a000000-0000-4000-8000-000000000010"
    assert pynvml.nvmlDeviceGetCudaComputeCapability(first) == (8, 9)
    memory = pynvml.nvmlDeviceGetMemoryInfo(first)
    assert (memory.total, memory.used, memory.free) == (512 << 20, 0, 512 << 20)
    assert pynvml.nvmlDeviceGetPciInfo(first).bus == 0x3B
    by_id = pynvml.nvmlDeviceGetHandleByPciBusId("0000:3B:00.0")
    assert pynvml.nvmlDeviceGetIndex(by_id) == 0
    assert pynvml.nvmlDeviceGetUtilizationRates(first).gpu == 0
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(first) == []
    assert pynvml.nvmlDeviceGetMigMode(second) == [1, 1]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(second) >= 2
    instances = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(second, i) for i in range(2)]
    uuids = [pynvml.nvmlDeviceGetUUID(instance) for instance in instances]
    assert uuids == [f"MIG-5a000000-0000-4000-8000-00000000002{i}" for i in range(2)], uuids
    assert pynvml.nvmlDeviceGetMemoryInfo(instances[0]).total == 256 << 20
    try:
        pynvml.nvmlDeviceGetTemperature(first, pynvml.NVML_TEMPERATURE_GPU)
        raise AssertionError("a CPU device has no temperature sensor")
    except pynvml.NVMLError_NotSupported:
        pass
    try:
        pynvml.nvmlDeviceGetHandleByIndex(2)
        raise AssertionError("there is no third device")
    except pynvml.NVMLError_InvalidArgument:
        pass
    assert pynvml.nvmlSystemGetDriverVersion()
    pynvml.nvmlShutdown()


def output(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def by_programs():
    devices = json.loads(output("gpustat", "--json"))["gpus"]
    assert [device["name"] for device in devices] == ["First", "Second"], devices
    assert [device["memory.total"] for device in devices] == [512, 1024], devices
    assert devices[0]["memory.used"] == 0, devices
    picture = output("nvitop", "-1", "--ascii")
    assert "First" in picture and "512.0MiB" in picture.replace(" ", ""), picture


# Sets a word, and ends when the next one is set, which nobody does.
ENDLESS = b""".version 7.0 .target sm_70 .address_size 64
.visible .entry endless(.param .u64 words) { .reg .b64 %w; .reg .b32 %v; .reg .pred %p;
ld.param.u64 %w, [words]; st.volatile.global.u32 [%w], 1;
LOOP: ld.volatile.global.u32 %v, [%w+4]; setp.eq.u32 %p, %v, 0; @%p bra LOOP; ret; }\0"""
TAKEN = 64 << 20


def use(driver):
    """Takes memory of the first device that it sees, runs a kernel there, says so, and goes on until it is killed."""
    cuda = ctypes.CDLL(driver)
    handles = [ctypes.c_void_p() for _ in range(3)]
    context, module, kernel = handles
    words, value = ctypes.c_uint64(), ctypes.c_uint32()

    def check(code):
        assert code == 0, code

    check(cuda.cuInit(0))
    check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
    check(cuda.cuMemAlloc_v2(ctypes.byref(words), ctypes.c_size_t(TAKEN)))
    check(cuda.cuMemsetD8_v2(words, ctypes.c_ubyte(0), ctypes.c_size_t(8)))
    check(cuda.cuCtxSynchronize())
    check(cuda.cuModuleLoadData(ctypes.byref(module), ENDLESS))
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"endless"))
    values = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(words), ctypes.c_void_p))
    stream = ctypes.c_void_p()
    check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, values, None))
    while value.value == 0:
        check(cuda.cuMemcpyDtoHAsync_v2(ctypes.byref(value), words, ctypes.c_size_t(4), ctypes.c_void_p(2)))
        check(cuda.cuStreamSynchronize(ctypes.c_void_p(2)))
    print("READY", flush=True)
    time.sleep(600)


def in_use(driver):
    """What is told of a process that has memory and runs a kernel, on a whole device and on an instance of one."""
    import pynvml

    pynvml.nvmlInit()
    first, second = (pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(second, 1)
    for device, told_by in ((first, first), (instance, second)):
        command = [sys.executable, __file__, "--use", driver]
        visible = {"CUDA_VISIBLE_DEVICES": pynvml.nvmlDeviceGetUUID(device)}
        user = subprocess.Popen(command, env=os.environ | visible, stdout=subprocess.PIPE, text=True)
        try:
            assert user.stdout.readline() == "READY\n"
            memory = pynvml.nvmlDeviceGetMemoryInfo(device)
            assert TAKEN <= memory.used < TAKEN + (1 << 20), memory.used
            assert memory.used + memory.free == memory.total
            (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(told_by)
            assert (process.pid, process.usedGpuMemory) == (user.pid, memory.used), process
            if device is first:
                # The rate is that of the time since it was last asked for.
                pynvml.nvmlDeviceGetUtilizationRates(first)
                time.sleep(0.5)
                rate = pynvml.nvmlDeviceGetUtilizationRates(first).gpu
                assert rate > 90, rate
                assert str(user.pid) in output("nvitop", "-1", "--ascii")
                (told, _) = json.loads(output("gpustat", "--json"))["gpus"]
                assert told["memory.used"] == 64, told
                assert [process["pid"] for process in told["processes"]] == [user.pid], told
        finally:
            user.kill()
            user.wait()
        assert pynvml.nvmlDeviceGetComputeRunningProcesses(told_by) == []
        assert pynvml.nvmlDeviceGetMemoryInfo(device).used == 0
    pynvml.nvmlShutdown()


def main(library, driver):
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        (place / "libnvidia-ml.so.1").symlink_to(pathlib.Path(library).resolve())
        (place / "fleet.toml").write_text(FLEET, encoding="utf-8")
        settings = {
            "LD_LIBRARY_PATH": str(place),
            "SOFTCUDA_DEVICES": str(place / "fleet.toml"),
            "SOFTCUDA_STATE": str(place / "state"),
        }
        command = [sys.executable, __file__, "--inside", str(pathlib.Path(driver).resolve())]
        subprocess.run(command, env=os.environ | settings, timeout=170, check=True)
    print("PASS nvml clients")


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        by_bindings()
        by_programs()
        in_use(sys.argv[2])
    elif sys.argv[1] == "--use":
        use(sys.argv[2])
    else:
        main(*sys.argv[1:])
