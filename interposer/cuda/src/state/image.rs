//! What the worker said of loaded images. Descriptions are kept for the life of the process, one for each distinct
//! content: names of kernels are handed to the program as C strings, and launches read layouts without a lock.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::Mutex;

use gpupool_protocol::image::{Contents, KernelInfo, MAX_PARAMETERS};
use gpupool_protocol::wire::pieces::Pieces;

use super::objects::lock;

/// The kernels of an image.
#[derive(Debug)]
pub struct Image {
    /// In the worker's order.
    pub kernels: Vec<Kernel>,
    by_name: HashMap<&'static CStr, u32>,
}

/// One kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Its name as the image has it.
    pub name: &'static CStr,
    /// Offset and size of each parameter.
    pub params: Vec<(u32, u32)>,
    /// Whether some bytes of the parameter block belong to no parameter.
    pub has_gaps: bool,
    /// The same where all parameters have 4 or 8 bytes, as most have.
    pub pieces: Option<Pieces>,
    /// Bytes of the parameter block.
    pub block: u32,
    /// CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, which follows from its registers and its launch bounds; the largest number where unknown.
    pub most_threads: u64,
    /// CUfunction_attribute 0, 1, 2, ….
    attributes: Vec<i32>,
}

impl Image {
    /// The index of the kernel with this name.
    pub fn find(&self, name: &CStr) -> Option<u32> {
        self.by_name.get(name).copied()
    }
}

impl Kernel {
    /// From offset and size of each parameter, and the attributes in their order; `None` if parameters cannot lie so.
    pub fn new(name: &'static CStr, params: Vec<(u32, u32)>, attributes: Vec<i32>) -> Option<Self> {
        let (mut block, mut has_gaps) = (0, false);
        for (offset, size) in &params {
            has_gaps |= *offset != block;
            let end = offset.checked_add(*size).filter(|end| *end <= MAX_PARAMETERS)?;
            block = block.max(end);
        }
        let most_threads = attributes.first().map_or(u64::MAX, |most| (*most).max(0) as u64);
        let pieces = Pieces::new(&params);
        Some(Self { name, params, has_gaps, pieces, block, most_threads, attributes })
    }

    /// An attribute as it was at the load.
    pub fn attribute(&self, attribute: u32) -> Option<i32> {
        self.attributes.get(attribute as usize).copied()
    }
}

/// The description with these contents; `None` if they cannot be true.
pub fn intern(contents: &Contents) -> Option<&'static Image> {
    static KNOWN: Mutex<Option<HashMap<Vec<u8>, &'static Image>>> = Mutex::new(None);
    let bare = Contents { kernels: contents.kernels.clone(), ..Contents::default() };
    let mut known = lock(&KNOWN);
    let known = known.get_or_insert_default();
    let key = bare.to_bytes();
    if let Some(image) = known.get(&key) {
        return Some(image);
    }
    let kernels = bare.kernels.iter().map(kernel).collect::<Option<Vec<_>>>()?;
    let by_name = kernels.iter().zip(0..).map(|(kernel, index)| (kernel.name, index)).collect();
    let image: &'static Image = Box::leak(Box::new(Image { kernels, by_name }));
    known.insert(key, image);
    Some(image)
}

fn kernel(info: &KernelInfo) -> Option<Kernel> {
    let params = info.params.iter().map(|p| (p.offset, p.size)).collect();
    let name: &'static CStr = Box::leak(CString::new(info.name.as_str()).ok()?.into_boxed_c_str());
    Kernel::new(name, params, info.attributes.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpupool_protocol::image::ParamInfo;

    fn contents(offset: u32, size: u32) -> Contents {
        let params = vec![ParamInfo { offset: 0, size: 8 }, ParamInfo { offset, size }];
        let kernel = KernelInfo { name: format!("k{offset}_{size}"), params, attributes: vec![1024, 0] };
        Contents { kernels: vec![kernel], info_log: "differs".into(), error_log: String::new() }
    }

    #[test]
    fn equal_contents_are_kept_once() {
        let image = intern(&contents(8, 4)).unwrap();
        assert_eq!(image.kernels[0].block, 12);
        assert_eq!((image.find(c"k8_4"), image.find(c"k8")), (Some(0), None));
        let again = intern(&Contents { info_log: String::new(), ..contents(8, 4) }).unwrap();
        assert!(std::ptr::eq(image, again));
        assert!(!std::ptr::eq(image, intern(&contents(8, 8)).unwrap()));
    }

    #[test]
    fn impossible_layouts_are_refused() {
        assert!(intern(&contents(u32::MAX, 4)).is_none());
        assert!(intern(&contents(MAX_PARAMETERS - 7, 8)).is_none());
        assert!(intern(&contents(MAX_PARAMETERS - 8, 8)).is_some());
    }
}
