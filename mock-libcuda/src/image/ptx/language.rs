//! The words of the language (PTX ISA 9.0): types, instructions, special registers, targets.

/// Bytes of a fundamental type.
pub fn size_of(name: &str) -> Option<u32> {
    Some(match name {
        "pred" | "b8" | "u8" | "s8" | "e4m3" | "e5m2" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" | "e4m3x2" | "e5m2x2" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "tf32" => 4,
        "b64" | "u64" | "s64" | "f64" | "texref" | "samplerref" | "surfref" => 8,
        "b128" => 16,
        _ => return None,
    })
}

pub fn is_float(name: &str) -> bool {
    matches!(name, "f16" | "bf16" | "f32" | "f64")
}

/// The first word of every instruction.
const INSTRUCTIONS: &[&str] = &[
    "abs",
    "activemask",
    "add",
    "addc",
    "alloca",
    "and",
    "applypriority",
    "atom",
    "bar",
    "barrier",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "bra",
    "brev",
    "brkpt",
    "brx",
    "call",
    "clusterlaunchcontrol",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "cp",
    "createpolicy",
    "cvt",
    "cvta",
    "discard",
    "div",
    "dp2a",
    "dp4a",
    "elect",
    "ex2",
    "exit",
    "fence",
    "fma",
    "fns",
    "getctarank",
    "griddepcontrol",
    "isspacep",
    "istypep",
    "ld",
    "ldmatrix",
    "ldu",
    "lg2",
    "lop3",
    "mad",
    "mad24",
    "madc",
    "mapa",
    "match",
    "max",
    "mbarrier",
    "membar",
    "min",
    "mma",
    "mov",
    "movmatrix",
    "mul",
    "mul24",
    "multimem",
    "nanosleep",
    "neg",
    "not",
    "or",
    "pmevent",
    "popc",
    "prefetch",
    "prefetchu",
    "prmt",
    "rcp",
    "red",
    "redux",
    "rem",
    "ret",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setmaxnreg",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "slct",
    "sqrt",
    "st",
    "stackrestore",
    "stacksave",
    "stmatrix",
    "sub",
    "subc",
    "suld",
    "suq",
    "sured",
    "sust",
    "szext",
    "tanh",
    "tcgen05",
    "tensormap",
    "testp",
    "tex",
    "tld4",
    "trap",
    "txq",
    "vabsdiff",
    "vabsdiff2",
    "vabsdiff4",
    "vadd",
    "vadd2",
    "vadd4",
    "vavrg2",
    "vavrg4",
    "vmad",
    "vmax",
    "vmax2",
    "vmax4",
    "vmin",
    "vmin2",
    "vmin4",
    "vote",
    "vset",
    "vset2",
    "vset4",
    "vshl",
    "vshr",
    "vsub",
    "vsub2",
    "vsub4",
    "wgmma",
    "wmma",
    "xor",
];

pub fn is_instruction(word: &str) -> bool {
    INSTRUCTIONS.binary_search(&word).is_ok()
}

/// `%tid`, `%clock64`, `%envreg3` and their kin.
pub fn is_special_register(word: &str) -> bool {
    const NAMES: &[&str] = &[
        "tid",
        "ntid",
        "laneid",
        "warpid",
        "nwarpid",
        "ctaid",
        "nctaid",
        "smid",
        "nsmid",
        "gridid",
        "is_explicit_cluster",
        "clusterid",
        "nclusterid",
        "cluster_ctaid",
        "cluster_nctaid",
        "cluster_ctarank",
        "cluster_nctarank",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "clock",
        "clock_hi",
        "clock64",
        "globaltimer",
        "globaltimer_lo",
        "globaltimer_hi",
        "total_smem_size",
        "aggr_smem_size",
        "dynamic_smem_size",
        "current_graph_exec",
        "reserved_smem_offset_begin",
        "reserved_smem_offset_end",
        "reserved_smem_offset_cap",
        "reserved_smem_offset",
    ];
    let Some(name) = word.strip_prefix('%') else {
        return false;
    };
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            let digits = rest.strip_suffix("_64").unwrap_or(rest);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    NAMES.contains(&name)
        || numbered("pm")
        || numbered("envreg")
        || numbered("reserved_smem_offset_")
}

/// A real architecture that a `.target` may name, and the first language that knows it.
const TARGETS: &[(u32, (u32, u32))] = &[
    (10, (1, 0)),
    (11, (1, 0)),
    (12, (1, 2)),
    (13, (1, 2)),
    (20, (2, 0)),
    (30, (3, 0)),
    (32, (4, 0)),
    (35, (3, 1)),
    (37, (4, 1)),
    (50, (4, 0)),
    (52, (4, 1)),
    (53, (4, 2)),
    (60, (5, 0)),
    (61, (5, 0)),
    (62, (5, 0)),
    (70, (6, 0)),
    (72, (6, 1)),
    (75, (6, 3)),
    (80, (7, 0)),
    (86, (7, 1)),
    (87, (7, 4)),
    (88, (9, 0)),
    (89, (7, 8)),
    (90, (7, 8)),
    (100, (8, 6)),
    (101, (8, 6)),
    (103, (8, 8)),
    (110, (9, 0)),
    (120, (8, 7)),
    (121, (8, 8)),
];

/// The language version that a target needs.
pub fn target_since(number: u32) -> Option<(u32, u32)> {
    TARGETS
        .iter()
        .find(|(known, _)| *known == number)
        .map(|(_, since)| *since)
}

/// The newest language of a driver, by its CUDA version.
pub fn newest(cuda_version: i32) -> (u32, u32) {
    let (major, minor) = (cuda_version / 1000, cuda_version % 1000 / 10);
    match (major, minor) {
        (13.., minor) => (9, minor as u32),
        (12, 9) => (8, 8),
        (12, 8) => (8, 7),
        (12, 6..) => (8, 5),
        (12, minor) => (8, minor as u32),
        (_, minor) => (7, minor as u32),
    }
}

/// The languages that there were.
pub fn exists(version: (u32, u32)) -> bool {
    matches!(
        version,
        (1, 0..=4)
            | (2, 0..=3)
            | (3, 0..=2)
            | (4, 0..=3)
            | (5, 0)
            | (6, 0..=5)
            | (7, 0..=8)
            | (8, 0..=8)
            | (9, _)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_sorted_for_the_search() {
        assert!(INSTRUCTIONS.is_sorted());
    }

    #[test]
    fn special_registers_are_told_from_declared_ones() {
        for name in ["%tid", "%pm3", "%pm0_64", "%envreg31", "%clock64"] {
            assert!(is_special_register(name), "{name}");
        }
        for name in ["%r1", "%pm", "tid", "%tidy"] {
            assert!(!is_special_register(name), "{name}");
        }
    }
}
