//! The devices that the program sees: the session's, as `CUDA_VISIBLE_DEVICES` orders and hides them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use gpupool_protocol::control::{DeviceInfo, Snapshot};

use crate::state::heap::Heap;

/// A device.
#[derive(Debug, Clone)]
pub struct Device {
    /// Its ordinal in the worker.
    pub pool: i32,
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its memory in bytes.
    pub total_memory: usize,
    /// PCI domain, bus and device.
    pub pci: (i32, i32, i32),
    /// By `CUdevice_attribute`: programs ask for hundreds, so they are looked up by place.
    attributes: Vec<Option<i32>>,
    /// The limits that every launch is checked against.
    pub limits: Limits,
    /// The handle of its primary context, once it has one.
    pub primary: Arc<Mutex<Primary>>,
    /// The handle of its default memory pool, or 0 while nobody has asked for it.
    pub default_pool: Arc<Mutex<u64>>,
    /// The least and the greatest priority of a stream, once somebody had to know them.
    pub priorities: OnceLock<(i32, i32)>,
    /// Memory of it that this library divides up.
    pub heap: Arc<Heap>,
}

/// A device's primary context.
#[derive(Debug, Default)]
pub struct Primary {
    /// Its handle, or 0 while nobody has asked for it.
    pub handle: u64,
    /// How often the program has retained it.
    pub retained: u32,
    /// The flags that it has or will have.
    pub flags: u32,
}

/// Limits of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Threads a block.
    pub threads: u32,
    /// Extents of a block.
    pub block: [u32; 3],
    /// Extents of a grid.
    pub grid: [u32; 3],
    /// Whether cooperative launches exist.
    pub cooperative: bool,
    /// Multiprocessors, on which the blocks of a cooperative launch must all find room.
    pub multiprocessors: u32,
    /// Registers a block.
    pub registers: u32,
}

/// What needs memory that client and worker share.
const SHARED_MEMORY_ONLY: Attribute = Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY;

/// What the driver can do and this client does not offer: programs that ask then do without.
const NOT_OFFERED: &[Attribute] = &[
    Attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
    Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    Attribute::CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    Attribute::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    Attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
    Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
    Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR,
    Attribute::CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1,
    Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1,
    Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1,
    Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
    Attribute::CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES,
    Attribute::CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
    Attribute::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
    Attribute::CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
    Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED,
];

impl Device {
    /// The device that the snapshot has at `pool`. `shared`: pinned memory is shared with the worker.
    pub fn new(pool: usize, info: &DeviceInfo, shared: bool) -> Self {
        let mut attributes: HashMap<i32, i32> = info.attributes.iter().copied().collect();
        let unshared = (!shared).then_some(&SHARED_MEMORY_ONLY);
        for hidden in NOT_OFFERED.iter().chain(unshared) {
            attributes.entry(*hidden as i32).and_modify(|value| *value = 0);
        }
        let limit = |attribute: Attribute| {
            attributes.get(&(attribute as i32)).and_then(|v| u32::try_from(*v).ok()).unwrap_or(0)
        };
        let limits = Limits {
            threads: limit(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            block: [
                limit(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                limit(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                limit(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
            ],
            grid: [
                limit(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                limit(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                limit(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
            ],
            cooperative: limit(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0,
            multiprocessors: limit(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
            registers: limit(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        };
        Self {
            pool: pool as i32,
            name: info.name.clone(),
            uuid: info.uuid,
            total_memory: info.total_memory as usize,
            pci: info.pci,
            attributes: by_place(&attributes),
            limits,
            primary: Arc::default(),
            default_pool: Arc::default(),
            priorities: OnceLock::new(),
            heap: Arc::default(),
        }
    }

    /// An attribute; `None` if the driver does not know it.
    pub fn attribute(&self, attribute: i32) -> Option<i32> {
        *self.attributes.get(usize::try_from(attribute).ok()?)?
    }

    /// `GPU-` and the UUID, as `nvidia-smi` and `CUDA_VISIBLE_DEVICES` write it.
    fn uuid_text(&self) -> String {
        let hex: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

/// More attributes than this a driver does not have.
const ATTRIBUTES_MAX: usize = 4096;

fn by_place(attributes: &HashMap<i32, i32>) -> Vec<Option<i32>> {
    let places =
        attributes.keys().filter_map(|id| usize::try_from(*id).ok()).filter(|at| *at < ATTRIBUTES_MAX);
    let mut values = vec![None; places.max().map_or(0, |last| last + 1)];
    for (at, value) in values.iter_mut().enumerate() {
        *value = attributes.get(&(at as i32)).copied();
    }
    values
}

/// The visible devices. `wanted` is `CUDA_VISIBLE_DEVICES`: ordinals or beginnings of UUIDs; it counts up to the first
/// entry that names no device, as the manual says (CUDA environment variables). A device that is named twice hides all.
/// `shared` as for [`Device::new`].
pub fn visible(snapshot: &Snapshot, wanted: Option<&str>, shared: bool) -> Vec<Device> {
    let devices = snapshot.devices.iter().enumerate();
    let all: Vec<_> = devices.map(|(at, info)| Device::new(at, info, shared)).collect();
    let Some(wanted) = wanted else { return all };
    let mut chosen: Vec<Device> = Vec::new();
    for name in wanted.split(',').map(str::trim) {
        let Some(device) = find(&all, name) else { break };
        if chosen.iter().any(|d| d.pool == device.pool) {
            return Vec::new();
        }
        chosen.push(device.clone());
    }
    chosen
}

fn find<'a>(all: &'a [Device], name: &str) -> Option<&'a Device> {
    if name.starts_with("GPU-") {
        let mut matching = all
            .iter()
            .filter(|d| d.uuid_text().starts_with(&name.to_lowercase().replacen("gpu-", "GPU-", 1)));
        let first = matching.next()?;
        return if matching.next().is_none() { Some(first) } else { None };
    }
    // The driver reads a number and ignores what follows it.
    let digits = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len());
    all.get(name[..digits].parse::<usize>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let device = |n: u8| DeviceInfo { name: format!("d{n}"), uuid: [n; 16], ..DeviceInfo::default() };
        Snapshot { devices: (0..3).map(device).collect(), ..Snapshot::default() }
    }

    fn chosen(wanted: &str) -> Vec<i32> {
        visible(&snapshot(), Some(wanted), false).iter().map(|d| d.pool).collect()
    }

    #[test]
    fn cuda_visible_devices_hides_and_orders() {
        assert_eq!(visible(&snapshot(), None, false).len(), 3);
        assert_eq!(chosen("2,0"), [2, 0]);
        assert_eq!(chosen("1, 7,0"), [1], "up to the first that is not there");
        assert_eq!(chosen("-1"), [] as [i32; 0]);
        assert_eq!(chosen(""), [] as [i32; 0]);
        assert_eq!(chosen("0,0"), [] as [i32; 0]);
        assert_eq!(chosen("GPU-02020202"), [2]);
        assert_eq!(chosen("GPU-0"), [] as [i32; 0], "more than one begins so");
    }

    #[test]
    fn what_is_not_offered_reads_as_zero() {
        // By cuda.h's numbers: managed memory, stream memory operations in both their forms, memory of the host's nodes.
        let hidden = [83, 92, 93, 94, 122, 123, 141];
        let attributes = hidden.into_iter().map(|attribute| (attribute, 1)).chain([(1, 1024)]).collect();
        let info = DeviceInfo { attributes, ..DeviceInfo::default() };
        let device = Device::new(0, &info, false);
        assert_eq!(hidden.map(|attribute| device.attribute(attribute)), [Some(0); 7]);
        assert_eq!(device.attribute(1), Some(1024));
        assert_eq!(device.attribute(9999), None);
        assert_eq!(device.limits.threads, 1024);
        // Mapped host memory (19) only where it is shared.
        let info = DeviceInfo { attributes: vec![(19, 1)], ..DeviceInfo::default() };
        assert_eq!(
            [false, true].map(|shared| Device::new(0, &info, shared).attribute(19)),
            [Some(0), Some(1)]
        );
    }
}
