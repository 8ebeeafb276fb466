//! What a format's name says of it: planes, texel blocks, components. Vulkan's format names are systematic, so the table
//! of formats (fixtures/oracle/vulkan-formats-580.txt) needs no columns for this.

/// A block of texels that is stored together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub bytes: u32,
    pub width: u32,
    pub height: u32,
}

/// How a component's bits are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numeric {
    Unorm,
    Snorm,
    Uscaled,
    Sscaled,
    Uint,
    Sint,
    Sfloat,
    Ufloat,
    Srgb,
}

/// A component: which of r, g, b, a it is, and where its bits lie from the block's lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    pub channel: usize,
    pub at: u32,
    pub bits: u32,
    pub numeric: Numeric,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plane {
    pub block: Block,
    /// How many texels of the image one of the plane stands for, along each side.
    pub divide: (u32, u32),
    /// Empty where blocks are compressed.
    pub components: Vec<Component>,
    /// One exponent for all components (E5B9G9R9).
    pub shared_exponent: bool,
}

/// A format's depth and stencil, as bytes of its block: where, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepthStencil {
    pub depth: Option<(u32, u32)>,
    pub stencil: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub planes: Vec<Plane>,
    pub depth_stencil: Option<DepthStencil>,
}

/// `None` for a name that this does not understand.
pub fn shape(name: &str) -> Option<Shape> {
    if let Some(depth_stencil) = depth_stencil(name) {
        return Some(depth_stencil);
    }
    if let Some(block) = compressed(name) {
        let plane = Plane {
            block,
            divide: (1, 1),
            components: Vec::new(),
            shared_exponent: false,
        };
        return Some(one(plane));
    }
    let words: Vec<&str> = name.split('_').collect();
    let numeric = words.iter().find_map(|word| numeric(word))?;
    let first_not_channel = words.iter().position(|word| channels(word).is_none())?;
    let groups = &words[..first_not_channel];
    let packed = words
        .iter()
        .any(|word| word.strip_prefix("PACK").is_some_and(is_number));
    let chroma = words
        .iter()
        .find(|word| matches!(**word, "420" | "422" | "444"));
    let planes = groups.iter().enumerate().map(|(index, group)| {
        let mut list = channels(group)?;
        if packed {
            list.reverse();
        }
        let divide = match chroma {
            Some(&"420") if index > 0 => (2, 2),
            Some(&"422") if index > 0 => (2, 1),
            _ => (1, 1),
        };
        let width = if groups.len() == 1 && chroma.is_some() {
            2
        } else {
            1
        };
        Some(plane(&list, numeric, divide, width))
    });
    Some(Shape {
        planes: planes.collect::<Option<_>>()?,
        depth_stencil: None,
    })
}

fn one(plane: Plane) -> Shape {
    Shape {
        planes: vec![plane],
        depth_stencil: None,
    }
}

fn plane(list: &[(char, u32)], numeric: Numeric, divide: (u32, u32), width: u32) -> Plane {
    let mut at = 0;
    let mut components = Vec::new();
    for (letter, bits) in list {
        let channel = "RGBA".find(*letter);
        if let Some(channel) = channel {
            // sRGB's alpha is linear.
            let numeric = match numeric {
                Numeric::Srgb if channel == 3 => Numeric::Unorm,
                other => other,
            };
            components.push(Component {
                channel,
                at,
                bits: *bits,
                numeric,
            });
        }
        at += bits;
    }
    Plane {
        block: Block {
            bytes: at.div_ceil(8),
            width,
            height: 1,
        },
        divide,
        components,
        shared_exponent: list.iter().any(|(letter, _)| *letter == 'E'),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `B8G8R8A8` as letters with bits.
fn channels(word: &str) -> Option<Vec<(char, u32)>> {
    let mut list = Vec::new();
    let mut rest = word;
    while let Some(letter) = rest.chars().next() {
        let digits: String = rest[1..].chars().take_while(char::is_ascii_digit).collect();
        if !"RGBAXE".contains(letter) || digits.is_empty() {
            return None;
        }
        rest = &rest[1 + digits.len()..];
        list.push((letter, digits.parse().ok()?));
    }
    (!list.is_empty()).then_some(list)
}

fn numeric(word: &str) -> Option<Numeric> {
    Some(match word {
        "UNORM" => Numeric::Unorm,
        "SNORM" => Numeric::Snorm,
        "USCALED" => Numeric::Uscaled,
        "SSCALED" => Numeric::Sscaled,
        "UINT" => Numeric::Uint,
        "SINT" | "SFIXED5" => Numeric::Sint,
        "SFLOAT" => Numeric::Sfloat,
        "UFLOAT" => Numeric::Ufloat,
        "SRGB" => Numeric::Srgb,
        _ => return None,
    })
}

fn compressed(name: &str) -> Option<Block> {
    let block = |bytes, width, height| Block {
        bytes,
        width,
        height,
    };
    if name.starts_with("BC") {
        let short = name.starts_with("BC1_") || name.starts_with("BC4_");
        return Some(block(if short { 8 } else { 16 }, 4, 4));
    }
    if name.starts_with("ETC2_") || name.starts_with("EAC_") {
        let short = name.contains("R8G8B8_") || name.contains("A1") || name.starts_with("EAC_R11_");
        return Some(block(if short { 8 } else { 16 }, 4, 4));
    }
    let size = name.strip_prefix("ASTC_")?.split('_').next()?;
    let mut sides = size.split('x').map(|side| side.parse().ok());
    Some(block(16, sides.next()??, sides.next()??))
}

/// Depth and stencil formats, whose two aspects are copied apart.
fn depth_stencil(name: &str) -> Option<Shape> {
    let (bytes, components, depth, stencil): (u32, &[(char, u32)], _, _) = match name {
        "D16_UNORM" => (2, &[('R', 16)], Some((0, 2)), None),
        "X8_D24_UNORM_PACK32" => (4, &[('R', 24)], Some((0, 3)), None),
        "D32_SFLOAT" => (4, &[('R', 32)], Some((0, 4)), None),
        "S8_UINT" => (1, &[], None, Some(0)),
        "D16_UNORM_S8_UINT" => (4, &[('R', 16)], Some((0, 2)), Some(2)),
        "D24_UNORM_S8_UINT" => (4, &[('R', 24)], Some((0, 3)), Some(3)),
        "D32_SFLOAT_S8_UINT" => (8, &[('R', 32)], Some((0, 4)), Some(4)),
        _ => return None,
    };
    let numeric = if name.contains("SFLOAT") {
        Numeric::Sfloat
    } else {
        Numeric::Unorm
    };
    let mut plane = plane(components, numeric, (1, 1), 1);
    plane.block.bytes = bytes;
    Some(Shape {
        planes: vec![plane],
        depth_stencil: Some(DepthStencil { depth, stencil }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(name: &str) -> Vec<(u32, u32, u32)> {
        let shape = shape(name).expect(name);
        let blocks = shape.planes.iter().map(|plane| plane.block);
        blocks
            .map(|block| (block.bytes, block.width, block.height))
            .collect()
    }

    #[test]
    fn names_tell_their_blocks() {
        assert_eq!(blocks("R8G8B8A8_UNORM"), [(4, 1, 1)]);
        assert_eq!(blocks("R5G6B5_UNORM_PACK16"), [(2, 1, 1)]);
        assert_eq!(blocks("R64G64B64A64_SFLOAT"), [(32, 1, 1)]);
        assert_eq!(blocks("BC1_RGBA_SRGB_BLOCK"), [(8, 4, 4)]);
        assert_eq!(blocks("ASTC_10x8_UNORM_BLOCK"), [(16, 10, 8)]);
        assert_eq!(blocks("ETC2_R8G8B8A1_UNORM_BLOCK"), [(8, 4, 4)]);
        assert_eq!(blocks("EAC_R11G11_SNORM_BLOCK"), [(16, 4, 4)]);
        assert_eq!(blocks("G8_B8R8_2PLANE_420_UNORM"), [(1, 1, 1), (2, 1, 1)]);
        assert_eq!(
            blocks("G10X6_B10X6_R10X6_3PLANE_444_UNORM_3PACK16"),
            [(2, 1, 1); 3]
        );
        assert_eq!(
            blocks("B10X6G10X6R10X6G10X6_422_UNORM_4PACK16"),
            [(8, 2, 1)]
        );
        assert_eq!(blocks("D24_UNORM_S8_UINT"), [(4, 1, 1)]);
        assert_eq!(shape("UNDEFINED"), None);
    }

    #[test]
    fn packed_formats_name_their_highest_bits_first() {
        let shape = shape("A2B10G10R10_UNORM_PACK32").expect("a format");
        let red = shape.planes[0].components[0];
        assert_eq!((red.channel, red.at, red.bits), (0, 0, 10));
    }
}
