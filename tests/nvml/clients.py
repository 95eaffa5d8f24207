"""What people look at GPUs with, on softcuda's NVML: nvidia-ml-py, gpustat and nvitop.

    clients.py LIBRARY      LIBRARY is libsoftnvml.so
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

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


def main(library):
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        (place / "libnvidia-ml.so.1").symlink_to(pathlib.Path(library).resolve())
        (place / "fleet.toml").write_text(FLEET, encoding="utf-8")
        settings = {
            "LD_LIBRARY_PATH": str(place),
            "SOFTCUDA_DEVICES": str(place / "fleet.toml"),
            "SOFTCUDA_STATE": str(place / "state"),
        }
        command = [sys.executable, __file__, "--inside"]
        subprocess.run(command, env=os.environ | settings, timeout=170, check=True)
    print("PASS nvml clients")


if __name__ == "__main__":
    if sys.argv[1:] == ["--inside"]:
        by_bindings()
        by_programs()
    else:
        main(sys.argv[1])
