//! The library, opened as a program opens it, on a fleet with MIG instances.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests call a C interface with good arguments")]

use softcuda_device::state::State;
use std::ffi::{CStr, c_char};

macro_rules! call {
    ($library:ident $name:ident ($($type:ty),*) ($($argument:expr),*)) => {{
        let name = concat!(stringify!($name), "\0").as_bytes();
        let function = unsafe { $library.get::<unsafe extern "C" fn($($type),*) -> u32>(name) }.expect(stringify!($name));
        unsafe { function($($argument),*) }
    }};
}

const FLEET: &str = r#"
    [[device]]
    name = "One"
    memory = "1M"
    pci = "0000:3b:00.0"
    uuid = "GPU-5a000000-0000-4000-8000-000000000010"
    [[device]]
    name = "Two"
    [[device.mig]]
    count = 2
    profile = "3g.20gb"
    memory = "2M"
    uuid = "MIG-5a000000-0000-4000-8000-000000000020"
"#;

/// One test: the settings are the process's.
#[test]
fn it_tells_of_the_fleet_and_of_its_use() {
    let directory =
        std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("nvml-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (file, state) = (directory.join("fleet.toml"), directory.join("state"));
    std::fs::write(&file, FLEET).unwrap();
    unsafe {
        std::env::set_var("SOFTCUDA_DEVICES", &file);
        std::env::set_var("SOFTCUDA_STATE", &state);
    }
    let path = std::env::current_exe().unwrap().with_file_name("libsoftnvml.so");
    let library = unsafe { libloading::Library::new(path) }.unwrap();
    let mut count = 0u32;
    assert_eq!(call!(library nvmlDeviceGetCount_v2(*mut u32)(&mut count)), 1, "not initialised");
    assert_eq!(call!(library nvmlInit_v2()()), 0);
    assert_eq!(call!(library nvmlDeviceGetCount_v2(*mut u32)(&mut count)), 0);
    assert_eq!(count, 2);

    let (mut one, mut two, mut instance) = (0usize, 0usize, 0usize);
    assert_eq!(call!(library nvmlDeviceGetHandleByIndex_v2(u32, *mut usize)(0, &mut one)), 0);
    let id = c"00000000:3B:00.0";
    assert_eq!(
        call!(library nvmlDeviceGetHandleByPciBusId_v2(*const c_char, *mut usize)(id.as_ptr(), &mut two)),
        0
    );
    assert_eq!(two, one);
    assert_eq!(call!(library nvmlDeviceGetHandleByIndex_v2(u32, *mut usize)(1, &mut two)), 0);
    assert_eq!(call!(library nvmlDeviceGetHandleByIndex_v2(u32, *mut usize)(2, &mut two)), 2);
    let mut modes = (9u32, 9u32);
    assert_eq!(
        call!(library nvmlDeviceGetMigMode(usize, *mut u32, *mut u32)(two, &mut modes.0, &mut modes.1)),
        0
    );
    assert_eq!(modes, (1, 1));
    let by_index = |index, place: &mut usize| call!(library nvmlDeviceGetMigDeviceHandleByIndex(usize, u32, *mut usize)(two, index, place));
    assert_eq!((by_index(1, &mut instance), by_index(2, &mut 0)), (0, 6));
    let mut uuid = [0 as c_char; 80];
    assert_eq!(call!(library nvmlDeviceGetUUID(usize, *mut c_char, u32)(instance, uuid.as_mut_ptr(), 80)), 0);
    let text = unsafe { CStr::from_ptr(uuid.as_ptr()) };
    assert_eq!(text, c"MIG-5a000000-0000-4000-8000-000000000021");
    assert_eq!(call!(library nvmlDeviceGetUUID(usize, *mut c_char, u32)(instance, uuid.as_mut_ptr(), 8)), 7);

    // Somebody uses the instance and the first device.
    let mut whole = [0u8; 16];
    (whole[0], whole[6], whole[8], whole[15]) = (0x5a, 0x40, 0x80, 0x10);
    let user = State::join(&state, &whole, 1 << 20).unwrap();
    user.take(1000).unwrap();
    whole[15] = 0x21;
    let other = State::join(&state, &whole, 2 << 20).unwrap();
    other.take(5).unwrap();
    let mut memory = [0u64; 3];
    assert_eq!(call!(library nvmlDeviceGetMemoryInfo(usize, *mut u64)(one, memory.as_mut_ptr())), 0);
    assert_eq!(memory, [1 << 20, (1 << 20) - 1000, 1000]);
    let mut versioned = [0u64; 5];
    assert_eq!(
        call!(library nvmlDeviceGetMemoryInfo_v2(usize, *mut u64)(instance, versioned.as_mut_ptr())),
        25
    );
    versioned[0] = 40 | 2 << 24;
    assert_eq!(
        call!(library nvmlDeviceGetMemoryInfo_v2(usize, *mut u64)(instance, versioned.as_mut_ptr())),
        0
    );
    assert_eq!(versioned[1..], [2 << 20, 0, (2 << 20) - 5, 5]);
    // {pid, memory, GPU instance, compute instance}
    let (mut list, mut room) = ([[0u64; 3]; 4], 0u32);
    let mut processes = |device, room: &mut u32| call!(library nvmlDeviceGetComputeRunningProcesses_v3(usize, *mut u32, *mut [u64; 3])(device, room, list.as_mut_ptr()));
    assert_eq!((processes(two, &mut room), room), (7, 1), "no room: how much it takes");
    assert_eq!((processes(two, &mut room), room), (0, 1));
    assert_eq!((list[0][0] as u32, list[0][1], list[0][2]), (std::process::id(), 5, 2));
    let mut rates = [9u32; 2];
    assert_eq!(call!(library nvmlDeviceGetUtilizationRates(usize, *mut u32)(one, rates.as_mut_ptr())), 0);
    assert_eq!(rates, [0, 0]);
    assert_eq!(call!(library nvmlDeviceGetTemperature(usize)(one)), 3);
    assert_eq!(call!(library nvmlDeviceGetTemperature(usize)(1)), 2);
    assert_eq!(call!(library nvmlShutdown()()), 0);
    assert_eq!(call!(library nvmlShutdown()()), 1);
    std::fs::remove_dir_all(directory).unwrap();
}
