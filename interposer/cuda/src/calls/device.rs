//! Devices: all from the snapshot.

use std::ffi::c_char;

use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUuuid};

use crate::code::{Answer, INVALID_DEVICE, INVALID_VALUE};
use crate::cptr::Ptr;
use crate::cx::Cx;

pub fn cuDeviceGetCount(cx: Cx, count: Ptr<i32>) -> Answer {
    count.set(cx.session.devices.len() as i32)
}

pub fn cuDeviceGet(cx: Cx, device: Ptr<i32>, ordinal: i32) -> Answer {
    device.not_null()?;
    cx.session.device(ordinal)?;
    device.set(ordinal)
}

pub fn cuDeviceGetName(cx: Cx, name: Ptr<c_char>, len: i32, device: i32) -> Answer {
    name.not_null()?;
    let len = usize::try_from(len).map_err(|_| INVALID_VALUE)?;
    name.set_text(&cx.session.device(device)?.name, len)
}

pub fn cuDeviceGetUuid(cx: Cx, uuid: Ptr<CUuuid>, device: i32) -> Answer {
    uuid.not_null()?;
    uuid.set(CUuuid { bytes: cx.session.device(device)?.uuid.map(|byte| byte as c_char) })
}

pub fn cuDeviceGetUuid_v2(cx: Cx, uuid: Ptr<CUuuid>, device: i32) -> Answer {
    cuDeviceGetUuid(cx, uuid, device)
}

pub fn cuDeviceTotalMem_v2(cx: Cx, bytes: Ptr<usize>, device: i32) -> Answer {
    bytes.not_null()?;
    bytes.set(cx.session.device(device)?.total_memory)
}

pub fn cuDeviceGetAttribute(cx: Cx, value: Ptr<i32>, attribute: i32, device: i32) -> Answer {
    value.not_null()?;
    value.set(cx.session.device(device)?.attribute(attribute).ok_or(INVALID_VALUE)?)
}

pub fn cuDeviceComputeCapability(cx: Cx, major: Ptr<i32>, minor: Ptr<i32>, device: i32) -> Answer {
    let device = cx.session.device(device)?;
    let (major, minor) = (major.not_null()?, minor.not_null()?);
    let part = |attribute: Attribute| device.attribute(attribute as i32).unwrap_or(0);
    major.set(part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR))?;
    minor.set(part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
}

/// `domain:bus:device.function`, as the manual writes it.
fn pci_text((domain, bus, device): (i32, i32, i32)) -> String {
    format!("{domain:04X}:{bus:02X}:{device:02X}.0")
}

pub fn cuDeviceGetPCIBusId(cx: Cx, id: Ptr<c_char>, len: i32, device: i32) -> Answer {
    id.not_null()?;
    let text = pci_text(cx.session.device(device)?.pci);
    match usize::try_from(len) {
        Ok(len) if len > text.len() => id.set_text(&text, len),
        _ => Err(INVALID_VALUE),
    }
}

pub fn cuDeviceGetByPCIBusId(cx: Cx, device: Ptr<i32>, id: Ptr<c_char>) -> Answer {
    device.not_null()?;
    let wanted = parse_pci(id.text()?).ok_or(INVALID_VALUE)?;
    let at = cx.session.devices.iter().position(|d| d.pci == wanted).ok_or(INVALID_DEVICE)?;
    device.set(at as i32)
}

/// `[domain:]bus:device[.function]`, hexadecimal.
fn parse_pci(text: &str) -> Option<(i32, i32, i32)> {
    let text = text.split('.').next()?;
    let mut parts = text.rsplit(':').map(|part| i32::from_str_radix(part, 16));
    let device = parts.next()?.ok()?;
    let bus = parts.next()?.ok()?;
    let domain = parts.next().unwrap_or(Ok(0)).ok()?;
    parts.next().is_none().then_some((domain, bus, device))
}

pub fn cuDeviceCanAccessPeer(cx: Cx, can: Ptr<i32>, device: i32, peer: i32) -> Answer {
    can.not_null()?;
    cx.session.device(device)?;
    cx.session.device(peer)?;
    can.set(0)
}

pub fn cuDeviceGetP2PAttribute(
    cx: Cx,
    value: Ptr<i32>,
    attribute: u32,
    source: i32,
    destination: i32,
) -> Answer {
    value.not_null()?;
    cx.session.device(source)?;
    cx.session.device(destination)?;
    if source == destination {
        return Err(INVALID_DEVICE);
    }
    // CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK to ..._ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED: no peer access at all.
    if (1..=5).contains(&attribute) { value.set(0) } else { Err(INVALID_VALUE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_ids_are_read_as_they_are_written() {
        assert_eq!(pci_text((0, 0x3b, 0)), "0000:3B:00.0");
        assert_eq!(parse_pci("0000:3b:00.0"), Some((0, 0x3b, 0)));
        assert_eq!(parse_pci("3b:00"), Some((0, 0x3b, 0)));
        for wrong in ["", "3b", "x:y", "1:2:3:4"] {
            assert_eq!(parse_pci(wrong), None, "{wrong}");
        }
    }
}
