//! Our own images (`fixtures/images`), whole and broken.

use proptest::prelude::*;

use super::*;

const H200: Runner = Runner {
    architecture: 90,
    cuda_version: 13_000,
    shared_per_block: 232_448,
};

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../../fixtures/images/", $name))
    };
}

const BASIC: &[u8] = fixture!("basic.ptx");
const CLUSTER: &[u8] = fixture!("cluster.ptx");
const LOCALS: &[u8] = fixture!("locals.ptx");
const CUBIN: &[u8] = fixture!("basic.sm_90.cubin");
const CLUSTER_CUBIN: &[u8] = fixture!("cluster.sm_90.cubin");
const OTHER_CUBIN: &[u8] = fixture!("basic.sm_80.cubin");
const FAT: &[u8] = fixture!("basic.ptx.fatbin");
const FAT_LZ4: &[u8] = fixture!("basic.bothz.fatbin");
const FAT_ZSTD: &[u8] = fixture!("basic.size.fatbin");
const ALL: &[&[u8]] = &[
    BASIC,
    CLUSTER,
    LOCALS,
    CUBIN,
    CLUSTER_CUBIN,
    OTHER_CUBIN,
    FAT,
    FAT_LZ4,
    FAT_ZSTD,
];

fn kernel<'i>(image: &'i Image, name: &str) -> &'i Kernel {
    let found = image
        .kernels
        .iter()
        .find(|kernel| kernel.name.to_str() == Ok(name));
    found.unwrap_or_else(|| panic!("no kernel {name}"))
}

fn places(image: &Image, name: &str) -> Vec<(u32, u32)> {
    let params = &kernel(image, name).params;
    params
        .iter()
        .map(|param| (param.offset, param.size))
        .collect()
}

fn variable<'i>(image: &'i Image, name: &str) -> &'i Variable {
    let found = image
        .variables
        .iter()
        .find(|variable| variable.name == name);
    found.unwrap_or_else(|| panic!("no variable {name}"))
}

fn ptx(text: &str) -> Result<Image, Refusal> {
    open(
        format!(".version 7.0\n.target sm_70\n.address_size 64\n{text}").as_bytes(),
        &H200,
    )
}

/// What both the PTX and the assembler's own cubin say.
fn check_basic(image: &Image) {
    assert_eq!(places(image, "empty"), []);
    assert_eq!(places(image, "one"), [(0, 8)]);
    assert_eq!(
        places(image, "mixed"),
        [(0, 1), (4, 4), (8, 8), (16, 48), (64, 4), (68, 2)]
    );
    assert_eq!(places(image, "pointers"), [(0, 8), (8, 8), (16, 12)]);
    assert_eq!(kernel(image, "bounded").bounds.max_threads, Some(256));
    assert_eq!(kernel(image, "cube").bounds.max_threads, Some(256));
    assert_eq!(kernel(image, "required").bounds.required, Some([128, 1, 1]));
    assert_eq!(kernel(image, "shared4k").attributes.shared, 4096);
    assert_eq!(kernel(image, "shared48k").attributes.shared, 49_152);
    assert_eq!(kernel(image, "local64k").attributes.local, 65_536);
    assert_eq!(kernel(image, "empty").attributes.local, 0);
    for (name, registers) in [
        ("empty", 4),
        ("mixed", 4),
        ("writes", 8),
        ("local1k", 10),
        ("shared4k", 8),
    ] {
        assert_eq!(
            kernel(image, name).attributes.registers,
            registers,
            "{name}"
        );
    }
    assert_eq!(variable(image, "table").size, 64);
    assert!(variable(image, "table").contents.starts_with(&[1, 2, 3, 4]));
    assert_eq!(variable(image, "counter").contents, [42, 0, 0, 0]);
    assert_eq!(variable(image, "coeffs").space, Space::Constant);
    assert_eq!(variable(image, "zeroed").size, 1024);
    assert_eq!(variable(image, "matrix").size, 16);
    assert!(!variable(image, "hidden").visible);
    let halves = &variable(image, "halves").contents;
    assert_eq!(
        halves[..8],
        [0.5f32.to_le_bytes(), 0.5f32.to_le_bytes()].concat()
    );
    let held = &variable(image, "where").pointers;
    assert_eq!(
        (held[0].target.as_str(), held[0].offset, held[0].addend),
        ("counter", 0, 0)
    );
}

#[test]
fn ptx_says_what_its_assembled_form_says() {
    for bytes in [BASIC, CUBIN, FAT_LZ4, FAT_ZSTD] {
        let image = open(bytes, &H200).expect("a good image");
        check_basic(&image);
        assert_eq!(image.kernels.len(), 17);
    }
    for bytes in [CLUSTER, CLUSTER_CUBIN] {
        let image = open(bytes, &H200).expect("a good image");
        let bounds = kernel(&image, "clustered").bounds;
        assert_eq!(
            (bounds.cluster, bounds.required),
            (Some([2, 1, 1]), Some([64, 1, 1]))
        );
        assert_eq!(kernel(&image, "clustermax").bounds.max_cluster, Some(8));
    }
}

#[test]
fn an_image_for_another_architecture_is_refused() {
    assert_eq!(open(OTHER_CUBIN, &H200), Err(Refusal::Architecture));
    let old = Runner {
        architecture: 89,
        ..H200
    };
    assert!(open(OTHER_CUBIN, &old).is_ok());
    assert_eq!(open(CUBIN, &old), Err(Refusal::Architecture));
    let refusal = open(CLUSTER, &old).expect_err("PTX for sm_90");
    assert_eq!(refusal.code(), CUresult::ERROR_INVALID_PTX);
    // Of a fat binary the PTX is taken where no machine code fits. nvFatbin strips its `.version`, whereupon the driver
    // refuses it (measured).
    let refusal = open(FAT, &H200).expect_err("PTX without a version");
    assert!(refusal.log().contains("Missing .version"), "{refusal:?}");
}

#[test]
fn ptx_that_does_not_assemble_is_refused() {
    for text in [
        ".visible .entry k() { ret;",
        ".visible .entry k(.param .u64 p",
        ".visible .entry k() { ret }",
        ".visible .entry k() { frobnicate.u32 %r1, %r2; ret; }",
        ".frobnicate x;",
        ".visible .entry k() { mov.u32 %r1, 0; ret; }",
        ".visible .entry k() { .reg .u32 %r<2>; mov.u32 %r2, 0; ret; }",
        ".visible .entry k() { bra NOWHERE; }",
        ".visible .entry k() { ret; } .visible .entry k() { ret; }",
        ".global .u32 a; .global .u32 a;",
        ".extern .func missing();\n.visible .entry k() { call missing; ret; }",
        ".visible .entry k() { .reg .u32 %r; ld.global.u32 %r, [missing]; ret; }",
        ".global .u32 a[2] = {1,2,3};",
        ".global .f32 a = 2;",
        "/* open",
    ] {
        let refusal = ptx(text).expect_err(text);
        assert_eq!(refusal.code(), CUresult::ERROR_INVALID_PTX, "{text}");
        assert!(!refusal.log().is_empty(), "{text}");
    }
}

#[test]
fn a_newer_language_is_refused_by_each_generation() {
    for (cuda_version, newest, newer) in [
        (11_040, "7.4", "7.5"),
        (12_000, "8.0", "8.1"),
        (12_020, "8.2", "8.3"),
        (12_040, "8.4", "8.5"),
        (13_000, "9.0", "9.1"),
    ] {
        let runner = Runner {
            cuda_version,
            ..H200
        };
        let at = |version: &str| {
            open(
                format!(".version {version}\n.target sm_70\n.address_size 64\n").as_bytes(),
                &runner,
            )
        };
        assert!(at(newest).is_ok(), "{newest} on {cuda_version}");
        assert!(
            matches!(at(newer), Err(Refusal::Version { .. })),
            "{newer} on {cuda_version}"
        );
    }
}

#[test]
fn what_compilers_write_is_read() {
    let image = ptx(
        r#"
.file 1 "a.cu", 123, 456
.weak .func (.param .b32 func_retval0) helper(.param .b64 helper_param_0, .param .align 8 .b8 helper_param_1[16])
{
	.reg .pred %p<2>; .reg .b32 %r<3>; .reg .f64 %fd<3>;
	.loc	1 4 0
	ld.param.u32 	%r1, [helper_param_1+4];
	setp.ne.s32	%p1, %r1, 0;
	@!%p1 bra 	$L__BB0_2;
	bra.uni 	$L__BB0_1;
$L__BB0_1:
	.loc	1 5 1, function_name $L__info_string0, inlined_at 1 8 2
	st.param.b32 	[func_retval0+0], %r1;
$L__BB0_2:
	ret;
}
.global .align 8 .b8 vtable[24] = {0, 0, 0, 0, 0, 0, 0, 0, 0xff(helper), 0xff00(helper), -1};
.global .align 4 .u32 grid[2][2] = {{1, 2}, {3}};
.shared .align 8 .f64 outer[32];
.visible .global .align 4 .b32 managed_flag = 7;
.visible .global .attribute(.managed) .align 4 .u32 shared_with_host;
.visible .entry kernel(.param .u64 kernel_param_0)
.maxntid 128
{
	.local .align 16 .b8 	__local_depot1[48];
	.reg .b64 	%SP; .reg .b64 	%SPL; .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .v2 .f32 %v;
	mov.u64 	%SPL, __local_depot1;
	cvta.local.u64 	%SP, %SPL;
	mov.u32 %r1, %tid.x;
	mov.b32 {%r2, _}, %SP;
	shfl.sync.down.b32 %r3|%p, %r1, 16, 31, -1;
	{ .reg .b32 temp_param_reg; .param .b64 param0; .param .align 8 .b8 param1[16]; .param .b32 retval0;
	call.uni (retval0), helper, (param0, param1);
	ld.param.b32 	%r4, [retval0+0]; }
	mov.u64 %rd1, outer; mov.u64 %rd2, grid;
	tex.2d.v4.f32.f32 {%r5, %r6, %r7, %r8}, [%rd3, {%r1, %r2}];
	bar.sync 0;
	fma.rn.f32 %r5, %r6, 0f3F800000, %r7;
	ret;
}
.section .debug_str { $L__info_string0: .b8 1, 2 }
"#
        .replace("%r3|%p,", "%r3,")
        .as_str(),
    )
    .expect("it assembles");
    let kernel = kernel(&image, "kernel");
    assert_eq!(
        (kernel.attributes.local, kernel.attributes.shared),
        (48, 256)
    );
    assert_eq!(kernel.bounds.max_threads, Some(128));
    assert_eq!(
        variable(&image, "grid").contents,
        [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]
    );
    assert_eq!(variable(&image, "vtable").contents[10], 0xff);
    assert_eq!(variable(&image, "shared_with_host").space, Space::Managed);
    assert_eq!(image.functions, ["helper"]);
}

#[test]
fn cut_and_spoilt_images_are_refused_or_read_but_never_end_the_process() {
    for bytes in ALL {
        for cut in 0..bytes.len().min(4000) {
            let _ = open(&bytes[..cut], &H200);
        }
    }
}

fn spoilt() -> impl Strategy<Value = Vec<u8>> {
    let spots = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12);
    (0..ALL.len(), spots).prop_map(|(which, spots)| {
        let mut bytes = ALL[which].to_vec();
        for (at, value) in spots {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes
    })
}

/// Words of the language in any order.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: &[&str] = &[
        ".entry",
        ".func",
        ".param",
        ".u64",
        ".b8",
        ".f32",
        ".align",
        "4",
        "a",
        "%r1",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        ";",
        ":",
        "=",
        "-",
        "~",
        "0xff",
        "18446744073709551615",
        "1e999",
        "0f12345678",
        "0d1",
        ".reg",
        "<",
        ">",
        ".shared",
        ".global",
        ".const",
        ".visible",
        ".extern",
        "mov",
        "bra",
        "@",
        "!",
        ".maxntid",
        ".reqntid",
        "0",
        "*",
        "/",
        "%",
        ".v2",
        ".local",
        "generic",
        "call",
        ".loc",
        ".file",
        "\"x\"",
        ".section",
        "+",
        "ret",
        ".ptr",
        "|",
        "&",
    ];
    prop::collection::vec(prop::sample::select(WORDS), 0..80).prop_map(|words| {
        let text = format!(
            ".version 7.0\n.target sm_70\n.address_size 64\n{}",
            words.join(" ")
        );
        text.into_bytes()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn no_bytes_end_the_process(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = open(&bytes, &H200);
        for magic in [ELF_MAGIC, fatbin::MAGIC] {
            let _ = open(&[&magic[..], &bytes].concat(), &H200);
        }
        let _ = open(&[&BASIC[..60], &bytes].concat(), &H200);
    }

    #[test]
    fn no_spoilt_image_ends_the_process(bytes in spoilt()) {
        let _ = open(&bytes, &H200);
        let _ = (cubin::length(&bytes), fatbin::length(&bytes));
    }

    #[test]
    fn no_words_of_the_language_end_the_process(bytes in soup()) {
        let _ = open(&bytes, &H200);
    }
}
