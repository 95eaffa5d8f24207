//! Calls the tables as a runtime does: through the words.

use super::*;
use std::mem::transmute;
use std::sync::Mutex;

struct Fake;

const PRIMARY: usize = 0x5000;

impl Host for Fake {
    fn driver_version(&self) -> i32 {
        13040
    }
    fn devices(&self) -> Vec<DeviceIdentity> {
        vec![DeviceIdentity { uuid: [3; 16], pci_domain: 0, pci_bus: 1, pci_device: 0 }]
    }
    fn primary_context(&self, device: CUdevice) -> Result<CUcontext, CUresult> {
        match device {
            0 => Ok(ptr::without_provenance_mut(PRIMARY)),
            1 => panic!("a panic must not leave the slot"),
            _ => Err(CUresult::CUDA_ERROR_INVALID_DEVICE),
        }
    }
    fn current_context(&self) -> CUcontext {
        CURRENT.with(|c| ptr::without_provenance_mut(c.get()))
    }
    unsafe fn load_cubin(&self, image: *const c_void) -> Result<CUmodule, CUresult> {
        Ok(ptr::without_provenance_mut(image.addr() + 1))
    }
    fn unload_cubin(&self, _: *const c_void) -> CUresult {
        CUresult::CUDA_ERROR_NOT_FOUND
    }
}

thread_local! { static CURRENT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) }; }

fn uuid(id: u128) -> CUuuid {
    CUuuid { bytes: id.to_be_bytes().map(|b| b as _) }
}

/// The words of a table.
fn table<const N: usize>(id: u128) -> &'static [*const c_void; N] {
    let table = get(&uuid(id), &Fake).expect("the table is given");
    // SAFETY: the tests ask for no more words than the table has.
    unsafe { &*table.cast() }
}

#[test]
fn others_are_refused() {
    for id in [
        0xf8cff951_2146_8b4e_b9e2_fb469e7c0dd9,
        0xda9151d3_3ae6_cc41_a5c0_4f26d533e328,
        0x6e163fbe_b958_444d_835c_e182aff1991e,
        0x7cb63f9b_9ca4_8e42_a484_beb66e6aed7f,
        0,
    ] {
        assert!(get(&uuid(id), &Fake).is_none());
    }
}

#[test]
fn every_word_is_a_size_or_a_function() {
    let sized = [
        (0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9, 13),
        (0xa094798c_2e74_2e74_93f2_0800200c0a66, 7),
        (0x42d85a81_23f6_cb47_8298_f6e78a3aecdc, 4),
        (0x263e8860_7cd2_6143_92f6_bbd5006dfa7e, 4),
        (0xd4082055_bde6_704b_8d34_ba123c66e1f2, 3),
        (0x21318c60_9714_3248_8ca6_41ff7324c8f2, 53),
        (0x1734dc26_800d_4745_8726_c0f1e7dd8bca, 8),
    ];
    for (id, words) in sized {
        let first: &[*const c_void; 1] = table(id);
        assert_eq!(first[0].addr(), words * 8);
    }
    let storage: &[*const c_void; 4] = table(0xc693336e_1121_df11_a8c3_68f355d89593);
    assert!(storage.iter().all(|word| word.addr() > 0x1000), "this table has no size word");
}

#[test]
fn primary_context_and_panics() {
    let words: &[*const c_void; 13] = table(0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9);
    // SAFETY: the slot has this prototype.
    let primary: unsafe extern "C" fn(*mut CUcontext, CUdevice) -> CUresult = unsafe { transmute(words[2]) };
    let mut context = ptr::null_mut();
    // SAFETY: `context` is a place for a handle.
    unsafe {
        assert_eq!(primary(&mut context, 0), CUresult::CUDA_SUCCESS);
        assert_eq!(context.addr(), PRIMARY);
        assert_eq!(primary(&mut context, 2), CUresult::CUDA_ERROR_INVALID_DEVICE);
        assert_eq!(primary(ptr::null_mut(), 0), CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(primary(&mut context, 1), CUresult::CUDA_ERROR_UNKNOWN);
    }
}

#[test]
fn module_slots_take_their_arguments_in_two_orders() {
    let words: &[*const c_void; 13] = table(0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9);
    type Ext1 = unsafe extern "C" fn(*mut CUmodule, *const c_void, usize, usize, u32) -> CUresult;
    type Ext2 = unsafe extern "C" fn(*const c_void, *mut CUmodule, usize, usize, u32) -> CUresult;
    // SAFETY: the slots have these prototypes.
    let (ext1, ext2): (Ext1, Ext2) =
        unsafe { (transmute::<*const c_void, Ext1>(words[6]), transmute::<*const c_void, Ext2>(words[8])) };
    let image: *const c_void = ptr::without_provenance(0x100);
    let mut module = ptr::null_mut();
    // SAFETY: `module` is a place for a handle; the fake host does not read the image.
    unsafe {
        assert_eq!(ext1(&mut module, image, 0, 0, 0), CUresult::CUDA_SUCCESS);
        assert_eq!(module.addr(), 0x101);
        module = ptr::null_mut();
        assert_eq!(ext2(image, &mut module, 0, 0, 0), CUresult::CUDA_SUCCESS);
        assert_eq!(module.addr(), 0x101);
        assert_eq!(ext1(&mut module, ptr::null(), 0, 0, 0), CUresult::CUDA_ERROR_INVALID_VALUE);
    }
}

static ENDED: Mutex<Vec<(usize, usize, usize)>> = Mutex::new(Vec::new());

unsafe extern "C" fn ended(context: CUcontext, key: *mut c_void, value: *mut c_void) {
    ENDED.lock().unwrap().push((context.addr(), key.addr(), value.addr()));
}

#[test]
fn context_local_storage() {
    type Put = unsafe extern "C" fn(usize, usize, usize, Option<StorageDestructor>) -> CUresult;
    type Get = unsafe extern "C" fn(*mut usize, usize, usize) -> CUresult;
    type Delete = unsafe extern "C" fn(usize, usize) -> CUresult;
    let words: &[*const c_void; 4] = table(0xc693336e_1121_df11_a8c3_68f355d89593);
    // SAFETY: the slots have these prototypes.
    let (put, delete, get): (Put, Delete, Get) = unsafe {
        (
            transmute::<*const c_void, Put>(words[0]),
            transmute::<*const c_void, Delete>(words[1]),
            transmute::<*const c_void, Get>(words[2]),
        )
    };
    let mut value = 0;
    // SAFETY: `value` is a place for a pointer; keys and values are only handed through.
    unsafe {
        assert_eq!(get(&mut value, 0, 9), CUresult::CUDA_ERROR_INVALID_CONTEXT, "no context is current");
        CURRENT.with(|c| c.set(0x77));
        assert_eq!(get(&mut value, 0, 9), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(put(0, 9, 90, Some(ended)), CUresult::CUDA_SUCCESS);
        assert_eq!((get(&mut value, 0, 9), value), (CUresult::CUDA_SUCCESS, 90));
        value = 0;
        assert_eq!((get(&mut value, 0x77, 9), value), (CUresult::CUDA_SUCCESS, 90));
        assert_eq!(get(&mut value, 0x78, 9), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(put(0x78, 9, 91, Some(ended)), CUresult::CUDA_SUCCESS);
        assert_eq!(put(0x78, 10, 92, None), CUresult::CUDA_SUCCESS);
        assert_eq!(delete(0, 9), CUresult::CUDA_SUCCESS);
        assert_eq!(delete(0, 9), CUresult::CUDA_ERROR_INVALID_HANDLE);
        context_destroyed(ptr::without_provenance_mut(0x78));
        assert_eq!(get(&mut value, 0x78, 10), CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    assert_eq!(*ENDED.lock().unwrap(), [(0x78, 9, 91)], "a deleted value is the deleter's to end");
}

#[test]
fn callbacks_are_off_and_many() {
    let words: &[*const c_void; 7] = table(0xa094798c_2e74_2e74_93f2_0800200c0a66);
    for slot in [2, 6] {
        // SAFETY: the slot has this prototype.
        let ask: unsafe extern "C" fn(*mut *const u32, *mut usize) -> CUresult =
            unsafe { transmute(words[slot]) };
        let (mut array, mut length) = (ptr::null(), 0);
        // SAFETY: both are places of the right type; the array has `length` entries.
        unsafe {
            assert_eq!(ask(&mut array, &mut length), CUresult::CUDA_SUCCESS);
            assert!(length >= 600);
            assert!(std::slice::from_raw_parts(array, length).iter().all(|on| *on == 0));
            assert_eq!(ask(ptr::null_mut(), &mut length), CUresult::CUDA_ERROR_INVALID_VALUE);
        }
    }
}

#[test]
fn integrity_slot_hashes_this_process() {
    let words: &[*const c_void; 3] = table(0xd4082055_bde6_704b_8d34_ba123c66e1f2);
    // SAFETY: the slot has this prototype.
    let check: unsafe extern "C" fn(u32, u64, *mut [u64; 2]) -> CUresult = unsafe { transmute(words[1]) };
    let ask = |version, time| {
        let mut out = [0; 2];
        // SAFETY: `out` is a place for two words.
        assert_eq!(unsafe { check(version, time, &mut out) }, CUresult::CUDA_SUCCESS);
        out
    };
    assert_eq!(ask(13050, 5), ask(13050, 6));
    assert_eq!(ask(13052, 5), ask(13052, 5));
    assert_ne!(ask(13052, 5), ask(13052, 6));
}
