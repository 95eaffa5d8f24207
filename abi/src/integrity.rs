//! The self-test that NVIDIA's runtime makes of the driver library: a keyed hash over facts of the process.
//!
//! The hash is HMAC (RFC 2104) over MD2 (RFC 1319), checked against 16 runtime versions; see the note in the crate's
//! own documentation for what it is for.
#![forbid(unsafe_code)]

use hmac::{KeyInit, Mac, SimpleHmac};
use md2::Md2;

/// What of one device goes into the hash. It must be what the library reports elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceIdentity {
    /// As from `cuDeviceGetUuid`.
    pub uuid: [u8; 16],
    /// `CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID` (50).
    pub pci_domain: i32,
    /// `CU_DEVICE_ATTRIBUTE_PCI_BUS_ID` (33).
    pub pci_bus: i32,
    /// `CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID` (34).
    pub pci_device: i32,
}

/// What of the call and the process goes into the hash, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// As from `cuDriverGetVersion`.
    pub driver_version: u32,
    /// The runtime's argument; its last decimal digit chooses the form of the answer.
    pub version: u32,
    /// `getpid()`.
    pub process: u32,
    /// The low half of `pthread_self()`.
    pub thread: u32,
    /// Address of the CUDART_INTERFACE table.
    pub cudart_table: u64,
    /// Address of the INTEGRITY_CHECK table.
    pub integrity_table: u64,
    /// Address of the function that is being called.
    pub function: u64,
    /// The runtime's argument: seconds since 1970.
    pub unix_seconds: u64,
}

const KEY: [u8; 16] =
    [0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52, 0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f];

/// The 16 bytes that the runtime expects, as the two words that it reads.
pub fn answer(question: &Question, devices: &[DeviceIdentity]) -> [u64; 2] {
    match question.version % 10 {
        0 => [0x3341_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
        1 => [0x1841_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
        _ => words(hmac_md2(&KEY, &message(question, devices))),
    }
}

/// The hashed bytes, little-endian and without padding.
fn message(q: &Question, devices: &[DeviceIdentity]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(48 + 28 * devices.len());
    for word in [q.driver_version, q.version, q.process, q.thread] {
        bytes.extend(word.to_le_bytes());
    }
    for word in [q.cudart_table, q.integrity_table, q.function, q.unix_seconds] {
        bytes.extend(word.to_le_bytes());
    }
    for device in devices {
        bytes.extend(device.uuid);
        for number in [device.pci_domain, device.pci_bus, device.pci_device] {
            bytes.extend(number.to_le_bytes());
        }
    }
    bytes
}

fn hmac_md2(key: &[u8], message: &[u8]) -> [u8; 16] {
    // HMAC takes keys of every length, so this cannot fail.
    let Ok(mut mac) = SimpleHmac::<Md2>::new_from_slice(key) else { return [0; 16] };
    mac.update(message);
    mac.finalize().into_bytes().into()
}

fn words(digest: [u8; 16]) -> [u64; 2] {
    let value = u128::from_le_bytes(digest);
    [value as u64, (value >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use super::*;
    use md2::Digest;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// RFC 1319, appendix A.5.
    #[test]
    fn md2_vectors() {
        for (text, want) in [
            ("", "8350e5a3e24c153df2275c9f80692773"),
            ("a", "32ec01ec4a6dac72c0ab96fb34c0b5d1"),
            ("abc", "da853b0d3f88d99b30283a69e6ded6bb"),
            ("message digest", "ab4f496bfb2a530b219ff33031fe06b0"),
            ("abcdefghijklmnopqrstuvwxyz", "4e8ddff3650292ab5a4108c3aa47940b"),
            (
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                "da33def2a42df13975352846c30338cd",
            ),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "d5976f79d83d3a0dc9806c3c66f3efd8",
            ),
        ] {
            assert_eq!(hex(&Md2::digest(text.as_bytes())), want, "{text}");
        }
    }

    /// HMAC by its definition in RFC 2104, written out with MD2's block of 16 bytes.
    #[test]
    fn hmac_is_rfc_2104_with_a_block_of_16() {
        let message = b"what do ya want for nothing?";
        let pad = |x: u8| KEY.map(|k| k ^ x);
        let inner = Md2::new().chain_update(pad(0x36)).chain_update(message).finalize();
        let outer = Md2::new().chain_update(pad(0x5c)).chain_update(inner).finalize();
        assert_eq!(hmac_md2(&KEY, message)[..], outer[..]);
    }

    fn question(version: u32) -> Question {
        Question {
            driver_version: 13040,
            version,
            process: 4242,
            thread: 0xdead_beef,
            cudart_table: 0x7f00_0000_1000,
            integrity_table: 0x7f00_0000_2000,
            function: 0x7f00_0000_3000,
            unix_seconds: 1_764_600_000,
        }
    }

    #[test]
    fn last_digit_chooses_the_form() {
        let device = DeviceIdentity { uuid: [7; 16], pci_domain: 0, pci_bus: 1, pci_device: 2 };
        assert_eq!(answer(&question(13050), &[device])[0], 0x3341_181c_03cb_675c);
        assert_eq!(answer(&question(13051), &[device])[0], 0x1841_181c_03cb_675c);
        let hashed = answer(&question(13052), &[device]);
        assert_eq!(hashed, words(hmac_md2(&KEY, &message(&question(13052), &[device]))));
        assert_ne!(hashed, answer(&question(13052), &[]));
        assert_ne!(hashed, answer(&Question { process: 4243, ..question(13052) }, &[device]));
    }

    #[test]
    fn message_has_the_layout_of_the_c_struct() {
        let device = DeviceIdentity { uuid: [9; 16], pci_domain: 1, pci_bus: 2, pci_device: 3 };
        let bytes = message(&question(13052), &[device, device]);
        assert_eq!(bytes.len(), 48 + 2 * 28);
        assert_eq!(&bytes[..4], &13040u32.to_le_bytes());
        assert_eq!(&bytes[16..24], &0x7f00_0000_1000u64.to_le_bytes());
        assert_eq!(&bytes[48..64], &[9; 16]);
        assert_eq!(&bytes[64..68], &1i32.to_le_bytes());
    }
}
