//! Texels as numbers: what clears, blits and resolves read and write.

use super::name::{Component, Numeric, Plane};

/// Four components; those that a format lacks read as 0, 0, 0, 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Texel {
    Float([f64; 4]),
    Uint([u64; 4]),
    Sint([i64; 4]),
}

impl Plane {
    /// `None` for compressed blocks.
    pub fn decode(&self, bytes: &[u8]) -> Option<Texel> {
        let first = self.components.first()?;
        let raw = |component: &Component| extract(bytes, component.at, component.bits);
        Some(match first.numeric {
            Numeric::Uint => {
                let mut texel = [0, 0, 0, 1];
                for component in &self.components {
                    texel[component.channel] = raw(component);
                }
                Texel::Uint(texel)
            }
            Numeric::Sint => {
                let mut texel = [0, 0, 0, 1];
                for component in &self.components {
                    texel[component.channel] = signed(raw(component), component.bits);
                }
                Texel::Sint(texel)
            }
            _ => {
                let mut texel = [0.0, 0.0, 0.0, 1.0];
                let scale = if self.shared_exponent {
                    f64::from(2_f32).powi(extract(bytes, 27, 5) as i32 - 24)
                } else {
                    0.0
                };
                for component in &self.components {
                    texel[component.channel] = if self.shared_exponent {
                        raw(component) as f64 * scale
                    } else {
                        to_float(raw(component), component)
                    };
                }
                Texel::Float(texel)
            }
        })
    }

    /// Writes what the components hold; bits of none are left as they are.
    pub fn encode(&self, texel: Texel, bytes: &mut [u8]) {
        if self.shared_exponent {
            return encode_shared(texel.floats(), bytes);
        }
        for component in &self.components {
            let raw = match component.numeric {
                Numeric::Uint => texel.uints()[component.channel].min(mask(component.bits)),
                Numeric::Sint => {
                    let high = (mask(component.bits) >> 1).cast_signed();
                    texel.sints()[component.channel]
                        .clamp(-high - 1, high)
                        .cast_unsigned()
                }
                _ => from_float(texel.floats()[component.channel], component),
            };
            insert(bytes, component.at, component.bits, raw);
        }
    }
}

impl Texel {
    pub fn floats(self) -> [f64; 4] {
        match self {
            Self::Float(texel) => texel,
            Self::Uint(texel) => texel.map(|value| value as f64),
            Self::Sint(texel) => texel.map(|value| value as f64),
        }
    }

    fn uints(self) -> [u64; 4] {
        match self {
            Self::Uint(texel) => texel,
            Self::Sint(texel) => texel.map(|value| value.max(0).cast_unsigned()),
            Self::Float(texel) => texel.map(|value| value as u64),
        }
    }

    fn sints(self) -> [i64; 4] {
        match self {
            Self::Sint(texel) => texel,
            Self::Uint(texel) => texel.map(|value| i64::try_from(value).unwrap_or(i64::MAX)),
            Self::Float(texel) => texel.map(|value| value as i64),
        }
    }

    /// The mean, for floating-point texels; integers are not mixed, the first stands.
    pub fn mixed(texels: &[(Self, f64)]) -> Self {
        let Some((first, _)) = texels.first() else {
            return Self::Float([0.0; 4]);
        };
        if !matches!(first, Self::Float(_)) {
            return *first;
        }
        let mut sum = [0.0; 4];
        for (texel, weight) in texels {
            for (sum, value) in sum.iter_mut().zip(texel.floats()) {
                *sum += value * weight;
            }
        }
        Self::Float(sum)
    }
}

const fn mask(bits: u32) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

fn signed(raw: u64, bits: u32) -> i64 {
    let unused = 64 - bits.min(64);
    (raw << unused).cast_signed() >> unused
}

fn extract(bytes: &[u8], at: u32, bits: u32) -> u64 {
    let mut raw = 0;
    for bit in 0..bits {
        let place = at + bit;
        let set = bytes
            .get((place / 8) as usize)
            .is_some_and(|byte| byte >> (place % 8) & 1 != 0);
        raw |= u64::from(set) << bit;
    }
    raw
}

fn insert(bytes: &mut [u8], at: u32, bits: u32, raw: u64) {
    for bit in 0..bits {
        let place = at + bit;
        if let Some(byte) = bytes.get_mut((place / 8) as usize) {
            let one = 1 << (place % 8);
            *byte = if raw >> bit & 1 != 0 {
                *byte | one
            } else {
                *byte & !one
            };
        }
    }
}

fn to_float(raw: u64, component: &Component) -> f64 {
    let bits = component.bits;
    let top = mask(bits) as f64;
    match component.numeric {
        Numeric::Unorm => raw as f64 / top,
        Numeric::Snorm => (signed(raw, bits) as f64 / (mask(bits) >> 1) as f64).max(-1.0),
        Numeric::Uscaled | Numeric::Uint => raw as f64,
        Numeric::Sscaled | Numeric::Sint => signed(raw, bits) as f64,
        Numeric::Srgb => {
            let value = raw as f64 / top;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        }
        Numeric::Sfloat | Numeric::Ufloat => match bits {
            64 => f64::from_bits(raw),
            32 => f64::from(f32::from_bits(raw as u32)),
            16 => small_to_float(raw, 10, true),
            11 => small_to_float(raw, 6, false),
            _ => small_to_float(raw, 5, false),
        },
    }
}

fn from_float(value: f64, component: &Component) -> u64 {
    let bits = component.bits;
    let top = mask(bits);
    let half = top >> 1;
    match component.numeric {
        // `as` takes NaN to 0, as the conversion rules do.
        Numeric::Unorm => (value.clamp(0.0, 1.0) * top as f64).round_ties_even() as u64,
        Numeric::Snorm => {
            ((value.clamp(-1.0, 1.0) * half as f64).round_ties_even() as i64).cast_unsigned()
        }
        Numeric::Uscaled | Numeric::Uint => (value as u64).min(top),
        Numeric::Sscaled | Numeric::Sint => (value as i64)
            .clamp(-half.cast_signed() - 1, half.cast_signed())
            .cast_unsigned(),
        Numeric::Srgb => {
            let value = value.clamp(0.0, 1.0);
            let coded = if value <= 0.003_130_8 {
                value * 12.92
            } else {
                1.055 * value.powf(1.0 / 2.4) - 0.055
            };
            (coded * top as f64).round_ties_even() as u64
        }
        Numeric::Sfloat | Numeric::Ufloat => match bits {
            64 => value.to_bits(),
            32 => u64::from((value as f32).to_bits()),
            16 => float_to_small(value, 10, true),
            11 => float_to_small(value, 6, false),
            _ => float_to_small(value, 5, false),
        },
    }
}

/// Floating-point numbers of five exponent bits, with a sign bit or without.
fn small_to_float(raw: u64, mantissa_bits: i32, has_sign: bool) -> f64 {
    let mantissa = (raw & mask(mantissa_bits.cast_unsigned())) as f64;
    let exponent = (raw >> mantissa_bits & 31) as i32;
    let unit = 2_f64.powi(-mantissa_bits);
    let size = match exponent {
        0 => mantissa * unit * 2_f64.powi(-14),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + mantissa * unit) * 2_f64.powi(exponent - 15),
    };
    if has_sign && raw >> (mantissa_bits + 5) & 1 != 0 {
        -size
    } else {
        size
    }
}

fn float_to_small(value: f64, mantissa_bits: i32, has_sign: bool) -> u64 {
    let infinity = 31 << mantissa_bits;
    if value.is_nan() {
        return infinity | 1;
    }
    let negative = value.is_sign_negative();
    if negative && !has_sign {
        return 0;
    }
    let size = value.abs();
    let exponent = (size.log2().floor().max(-14.0) as i32).min(16);
    let units = (size / 2_f64.powi(exponent - mantissa_bits)).round_ties_even() as u64;
    // Counting in units of the last place carries a rounded-up mantissa into the exponent by itself.
    let one = 1 << mantissa_bits;
    let coded = if units < one {
        units
    } else {
        units - one + (u64::try_from(exponent + 15).unwrap_or(0) << mantissa_bits)
    };
    let sign = u64::from(negative) << (mantissa_bits + 5);
    coded.min(infinity) | sign
}

fn encode_shared(texel: [f64; 4], bytes: &mut [u8]) {
    const TOP: f64 = 65408.0;
    let [red, green, blue, _] = texel.map(|value| value.clamp(0.0, TOP));
    let largest = red.max(green).max(blue);
    let mut exponent = (largest.log2().floor().max(-16.0) as i32) + 16;
    let scale = |exponent: i32| 2_f64.powi(exponent - 24);
    if (largest / scale(exponent)).round_ties_even() >= 512.0 {
        exponent += 1;
    }
    for (index, value) in (0_u32..).zip([red, green, blue]) {
        let raw = (value / scale(exponent)).round_ties_even() as u64;
        insert(bytes, index * 9, 9, raw);
    }
    insert(bytes, 27, 5, u64::from(exponent.cast_unsigned()));
}

#[cfg(test)]
mod tests {
    use super::super::name::shape;
    use super::*;

    fn round(name: &str, bytes: &[u8]) -> Texel {
        let plane = &shape(name).expect(name).planes[0];
        let texel = plane.decode(bytes).expect("not compressed");
        let mut again = vec![0; bytes.len()];
        plane.encode(texel, &mut again);
        assert_eq!(again, bytes, "{name}: {texel:?}");
        texel
    }

    #[test]
    fn what_is_read_is_written_back() {
        for name in [
            "R8G8B8A8_UNORM",
            "B8G8R8A8_SRGB",
            "R8G8B8A8_SNORM",
            "R16G16_SFLOAT",
            "A2B10G10R10_UINT_PACK32",
            "B10G11R11_UFLOAT_PACK32",
            "R32_SINT",
            "R16G16_SSCALED",
        ] {
            round(name, &[0x12, 0x34, 0x56, 0x39]);
        }
        round("R5G6B5_UNORM_PACK16", &[0x34, 0x12]);
        round("E5B9G9R9_UFLOAT_PACK32", &[0xff, 0x01, 0x00, 0x80]);
    }

    #[test]
    fn channels_are_where_the_name_says() {
        let Texel::Float(texel) = round("B8G8R8A8_UNORM", &[255, 0, 51, 0]) else {
            panic!("a float");
        };
        assert_eq!(texel, [0.2, 0.0, 1.0, 0.0]);
        assert_eq!(
            round("R16_SFLOAT", &[0x00, 0x3c]),
            Texel::Float([1.0, 0.0, 0.0, 1.0])
        );
        assert_eq!(
            round("R32_SINT", &[0xff, 0xff, 0xff, 0xff]),
            Texel::Sint([-1, 0, 0, 1])
        );
    }
}
