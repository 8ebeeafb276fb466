//! Who a device is: UUID and PCI address, and what each API says of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// 16 bytes. Reads and prints as `GPU-07ac64f7-ff7f-d9fb-9bcb-7afb7720386f`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    pub const ZERO: Self = Self([0; 16]);

    /// The first three groups with their bytes reversed, as a mixed-endian (Windows GUID) reader shows them.
    #[must_use]
    pub fn bytes_swapped(self) -> Self {
        let mut bytes = self.0;
        bytes[0..4].reverse();
        bytes[4..6].reverse();
        bytes[6..8].reverse();
        Self(bytes)
    }

    /// The UUID of the n-th copy of a device: the last four bytes, read as a number, plus n.
    #[must_use]
    pub fn nth_copy(self, n: u32) -> Self {
        let mut bytes = self.0;
        let tail = u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        bytes[12..].copy_from_slice(&tail.wrapping_add(n).to_be_bytes());
        Self(bytes)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 0 | 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Text that is neither a UUID nor a PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {wanted}")]
pub struct IdentityError {
    pub text: String,
    pub wanted: &'static str,
}

impl FromStr for Uuid {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let wrong = || IdentityError {
            text: text.to_owned(),
            wanted: "a UUID (GPU-8-4-4-4-12 hexadecimal digits)",
        };
        let body = text.strip_prefix("GPU-").unwrap_or(text);
        let groups: Vec<&str> = body.split('-').collect();
        if groups.iter().map(|group| group.len()).ne([8, 4, 4, 4, 12]) {
            return Err(wrong());
        }
        let digits = groups.concat();
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

/// Domain, bus, device, function. Reads and prints as `0000:01:00.0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub function: u32,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

impl FromStr for PciAddress {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let parse = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            let number = |digits: &str, bound: u32| {
                u32::from_str_radix(digits, 16).ok().filter(|n| *n <= bound)
            };
            Some(Self {
                domain: number(domain, u32::MAX)?,
                bus: number(bus, 0xff)?,
                device: number(device, 0x1f)?,
                function: number(function, 7)?,
            })
        };
        parse().ok_or_else(|| IdentityError {
            text: text.to_owned(),
            wanted: "a PCI address (dddd:bb:dd.f)",
        })
    }
}

macro_rules! serde_as_text {
    ($($kind:ty),+) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                String::deserialize(input)?.parse().map_err(de::Error::custom)
            }
        }
    )+};
}
serde_as_text!(Uuid, PciAddress);

/// What one API says of a device, identity faults applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub uuid: [u8; 16],
    pub pci: PciAddress,
    /// It is spelled as a MIG instance's.
    pub mig: bool,
}

impl Identity {
    /// `GPU-…`, or `MIG-…` for what is shown as a MIG instance.
    #[must_use]
    pub fn uuid_text(&self) -> String {
        let text = Uuid(self.uuid).to_string();
        match text.strip_prefix("GPU") {
            Some(rest) if self.mig => format!("MIG{rest}"),
            _ => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_as_it_prints() {
        let text = "GPU-07ac64f7-ff7f-d9fb-9bcb-7afb7720386f";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!(uuid.0[..4], [0x07, 0xac, 0x64, 0xf7]);
        assert_eq!(uuid.to_string(), text);
        assert_eq!(
            uuid.bytes_swapped().to_string(),
            "GPU-f764ac07-7fff-fbd9-9bcb-7afb7720386f"
        );
        assert_eq!(
            uuid.nth_copy(1).to_string(),
            "GPU-07ac64f7-ff7f-d9fb-9bcb-7afb77203870"
        );
    }

    #[test]
    fn what_is_no_uuid_or_address_is_named_in_the_error() {
        for text in [
            "GPU-",
            "GPU-07ac64f7ff7fd9fb9bcb7afb7720386f",
            "GPU-+7ac64f7-ff7f-d9fb-9bcb-7afb7720386f",
            "äääa-",
        ] {
            assert_eq!(text.parse::<Uuid>().unwrap_err().text, text);
        }
        for text in [
            "",
            "0000:01:00",
            "0000:100:00.0",
            "0000:01:20.0",
            "0000:01:00.8",
        ] {
            assert_eq!(text.parse::<PciAddress>().unwrap_err().text, text);
        }
        assert_eq!("0000:3b:00.0".parse::<PciAddress>().unwrap().bus, 0x3b);
    }
}
