//! A whole PTX module: its head, variables, functions and entries.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::CString;

use super::super::{Attributes, Bounds, Image, Kernel, Param, Refusal, Runner, Space, Variable};
use super::body::{self, Body};
use super::cursor::Cursor;
use super::declaration::{self, Declared};
use super::language;
use super::lexer::Token;

/// Functions that the driver itself defines.
const BUILT_IN: &[&str] = &[
    "vprintf",
    "malloc",
    "free",
    "__assertfail",
    "cudaGetParameterBufferV2",
    "cudaLaunchDeviceV2",
];

struct Function<'a> {
    entry: bool,
    params: Vec<Param>,
    bounds: Bounds,
    body: Option<Body<'a>>,
}

#[derive(Default)]
struct Module<'a> {
    /// Whether undefined functions are left to a link.
    link: bool,
    version: (u32, u32),
    target: u32,
    /// `.target debug`, which wants sections of debug information.
    debug: bool,
    sections: bool,
    functions: HashMap<&'a str, Function<'a>>,
    entries: Vec<&'a str>,
    variables: Vec<Variable>,
    /// Of the whole module: bytes and alignment.
    shared: HashMap<&'a str, (u64, u64)>,
    externs: HashSet<&'a str>,
    names: HashSet<&'a str>,
}

pub fn parse(text: &[u8], runner: &Runner, link: bool) -> Result<Image, Refusal> {
    let mut cursor = Cursor::new(text)?;
    let mut module = Module {
        link,
        ..Module::default()
    };
    module.head(&mut cursor, runner)?;
    while cursor.token != Token::End {
        module.statement(&mut cursor)?;
    }
    module.finish(runner)
}

impl<'a> Module<'a> {
    /// `.version`, `.target` and `.address_size`, in this order; the last may be missing.
    fn head(&mut self, cursor: &mut Cursor<'a>, runner: &Runner) -> Result<(), Refusal> {
        if !cursor.skip_dot("version")? {
            return Err(
                cursor.fatal("Missing .version directive at start of file 'application ptx input'")
            );
        }
        let version = match cursor.token {
            Token::Number(text) => text
                .split_once('.')
                .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?))),
            _ => None,
        };
        let Some((major, minor)) = version else {
            return Err(
                cursor.fatal("Missing .version directive at start of file 'application ptx input'")
            );
        };
        let newest = language::newest(runner.cuda_version);
        if (major, minor) > newest || !language::exists((major, minor)) {
            return Err(Refusal::Version {
                version: (major, minor),
                newest,
            });
        }
        self.version = (major, minor);
        cursor.take()?;
        if !cursor.skip_dot("target")? {
            return Err(
                cursor.fatal("Missing .target directive at start of file 'application ptx input'")
            );
        }
        self.targets(cursor, (major, minor))?;
        if cursor.skip_dot("address_size")? {
            self.address_size(cursor, runner)?;
        }
        Ok(())
    }

    fn address_size(&mut self, cursor: &mut Cursor<'a>, runner: &Runner) -> Result<(), Refusal> {
        const SINCE: (u32, u32) = (2, 3);
        const WIDE_ONLY: u32 = 90;
        if self.version < SINCE {
            return Err(cursor.error(
                "Feature '.address_size directive' requires PTX ISA .version 2.3 or later",
            ));
        }
        match cursor.count()? {
            32 if runner.architecture >= WIDE_ONLY => Err(Refusal::Assembly {
                problem: "ptxas fatal   :  32-Bit ABI (--machine 32 or 32-Bit addressing) is not supported on sm_90 or higher architectures.".to_owned(),
            }),
            32 | 64 => Ok(()),
            _ => Err(cursor.error("Illegal value for .address_size directive (must be 32 or 64)")),
        }
    }

    fn targets(&mut self, cursor: &mut Cursor<'a>, version: (u32, u32)) -> Result<(), Refusal> {
        loop {
            let name = cursor.word()?;
            if let Some(number) = name.strip_prefix("sm_") {
                let number = number.trim_end_matches(['a', 'f']).parse().ok();
                let since = number.and_then(language::target_since);
                match (number, since) {
                    (Some(number), Some(since)) if since <= version => self.target = number,
                    (_, Some(_)) => {
                        return Err(cursor.error(format!(
                            "PTX .version {}.{} does not support .target {name}",
                            version.0, version.1
                        )));
                    }
                    _ => return Err(cursor.fatal(format!("Unsupported .target '{name}'"))),
                }
            } else if name == "debug" {
                self.debug = true;
            } else if !matches!(
                name,
                "texmode_unified" | "texmode_independent" | "map_f64_to_f32"
            ) {
                return Err(cursor.fatal(
                    "Target architecture not defined at start of file 'application ptx input'",
                ));
            }
            if !cursor.skip(b',')? {
                return Ok(());
            }
        }
    }

    fn statement(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Refusal> {
        let (mut external, mut visible) = (false, false);
        loop {
            let name = match cursor.token {
                Token::Dot(name) => name,
                Token::Mark(b';') => {
                    cursor.take()?;
                    return Ok(());
                }
                _ => return cursor.unexpected(),
            };
            cursor.take()?;
            match name {
                "extern" => external = true,
                "visible" | "weak" | "common" => visible = true,
                "entry" => return self.function(cursor, true, external),
                "func" => return self.function(cursor, false, external),
                "global" | "const" | "shared" | "tex" => {
                    return self.variables(cursor, name, external, visible);
                }
                "file" => return file(cursor),
                "loc" => return body::location(cursor),
                "section" => {
                    self.sections = true;
                    return body::section(cursor);
                }
                "pragma" => return cursor.skip_statement(),
                "alias" => return self.alias(cursor),
                _ => return Err(cursor.error(format!("Unknown directive '.{name}'"))),
            }
        }
    }

    fn declare(&mut self, cursor: &Cursor<'a>, name: &'a str) -> Result<(), Refusal> {
        if self.names.insert(name) || self.externs.contains(name) {
            Ok(())
        } else {
            Err(cursor.error(format!("Duplicate definition of '{name}'")))
        }
    }

    fn variables(
        &mut self,
        cursor: &mut Cursor<'a>,
        space: &str,
        external: bool,
        visible: bool,
    ) -> Result<(), Refusal> {
        for declared in declaration::variables(cursor)? {
            self.declare(cursor, declared.name)?;
            if external {
                self.externs.insert(declared.name);
            } else if declared.open {
                return Err(cursor.error(format!("Array '{}' has no size", declared.name)));
            }
            self.externs
                .retain(|name| external || *name != declared.name);
            match space {
                "shared" => {
                    let size = if external { 0 } else { declared.size };
                    self.shared.insert(declared.name, (size, declared.align));
                }
                _ if external => {}
                _ => self.variables.push(variable(declared, space, visible)),
            }
        }
        Ok(())
    }

    /// `.alias a, b;`
    fn alias(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Refusal> {
        let name = cursor.word()?;
        cursor.expect(b',')?;
        cursor.word()?;
        self.names.insert(name);
        cursor.expect(b';')
    }

    fn function(
        &mut self,
        cursor: &mut Cursor<'a>,
        entry: bool,
        external: bool,
    ) -> Result<(), Refusal> {
        let mut head = Vec::new();
        if cursor.skip_dot("attribute")? {
            cursor.skip_block(b'(', b')')?;
        }
        if !entry && cursor.at(b'(') {
            head.extend(declaration::params(cursor)?);
        }
        let name = cursor.word()?;
        let mut params = Vec::new();
        if cursor.at(b'(') {
            let list = declaration::params(cursor)?;
            params.extend(list.iter().map(|(_, place)| *place));
            head.extend(list);
        }
        let bounds = bounds(cursor)?;
        if entry {
            self.check_space(cursor, name, &params)?;
        }
        let defined = cursor.at(b'{');
        let known = self.functions.get(name);
        if defined && known.is_some_and(|function| function.body.is_some()) {
            return Err(cursor.error(format!("Duplicate definition of function '{name}'")));
        }
        if known.is_none() {
            self.declare(cursor, name)?;
        }
        let mut body = None;
        if defined {
            let names: Vec<(&str, bool, u32)> = head
                .iter()
                // Registers of a head need no count of their own: they are met in the body.
                .map(|(declared, _)| {
                    (
                        declared.name,
                        declared.name.starts_with('%'),
                        declared.element,
                    )
                })
                .collect();
            body = Some(body::read(cursor, &names, |name| {
                self.names.contains(name)
            })?);
        } else {
            cursor.expect(b';')?;
        }
        if external {
            self.externs.insert(name);
        } else if defined {
            self.externs.remove(name);
        }
        if defined || known_nothing(self.functions.get(name)) {
            if entry && !self.entries.contains(&name) {
                self.entries.push(name);
            }
            let function = Function {
                entry,
                params,
                bounds,
                body,
            };
            self.functions.insert(name, function);
        }
        Ok(())
    }

    /// The parameters of an entry must fit the constant bank.
    fn check_space(
        &self,
        cursor: &Cursor<'a>,
        name: &str,
        params: &[Param],
    ) -> Result<(), Refusal> {
        const WIDE_SINCE: (u32, u32) = (8, 1);
        let most = if self.version >= WIDE_SINCE && self.target >= 70 {
            32_764
        } else {
            4_352
        };
        let bytes = params
            .last()
            .map_or(0, |last| last.offset.saturating_add(last.size));
        if bytes > most {
            return Err(cursor.error(format!(
                "Entry function '{name}' uses too much parameter space (0x{bytes:x} bytes, 0x{most:x} max)."
            )));
        }
        Ok(())
    }

    fn finish(self, runner: &Runner) -> Result<Image, Refusal> {
        let whole = |problem: &str| {
            Err(Refusal::Assembly {
                problem: problem.to_owned(),
            })
        };
        if self.target > runner.architecture {
            return whole(
                "ptxas fatal   : SM version specified by .target is higher than default SM version assumed",
            );
        }
        if self.debug && !self.sections {
            return whole(
                "ptxas error   : Debug information not found in presence of .target debug\nptxas fatal   : Ptx assembly aborted due to errors",
            );
        }
        let constant: u64 = self
            .variables
            .iter()
            .filter(|variable| variable.space == Space::Constant)
            .fold(0u64, |end, variable| {
                end.checked_next_multiple_of(variable.align.max(1))
                    .unwrap_or(u64::MAX)
                    .saturating_add(variable.size)
            });
        const CONSTANT_BANK: u64 = 65_536;
        if constant > CONSTANT_BANK {
            return Err(Refusal::Assembly {
                problem: format!(
                    "ptxas error   : File uses too much global constant data (0x{constant:x} bytes, 0x{CONSTANT_BANK:x} max)"
                ),
            });
        }
        let mut kernels = Vec::new();
        let mut undefined = BTreeSet::new();
        for name in &self.entries {
            kernels.push(self.kernel(name, constant as u32, runner, &mut undefined)?);
        }
        let functions = self.functions.iter();
        let mut functions: Vec<String> = functions
            .filter(|(_, function)| !function.entry && function.body.is_some())
            .map(|(name, _)| (*name).to_owned())
            .collect();
        functions.sort();
        Ok(Image {
            kernels,
            variables: self.variables,
            functions,
            undefined: undefined.into_iter().collect(),
        })
    }

    fn kernel(
        &self,
        name: &'a str,
        constant: u32,
        runner: &Runner,
        undefined: &mut BTreeSet<String>,
    ) -> Result<Kernel, Refusal> {
        let function = &self.functions[name];
        let (mut local, mut shared, mut registers, mut instructions) = (0u64, 0u64, 0u32, 0u32);
        let mut attributes = Attributes::default();
        let (mut open, mut seen) = (vec![name], HashSet::from([name]));
        while let Some(next) = open.pop() {
            if let Some((size, align)) = self.shared.get(next) {
                shared = shared
                    .checked_next_multiple_of((*align).max(1))
                    .unwrap_or(u64::MAX)
                    .saturating_add(*size);
            }
            attributes.calls_malloc |= next == "malloc";
            attributes.calls_printf |= next == "vprintf";
            let Some(met) = self.functions.get(next) else {
                continue;
            };
            let Some(body) = &met.body else {
                if BUILT_IN.contains(&next) {
                    continue;
                } else if self.link && next != name {
                    undefined.insert(next.to_owned());
                } else {
                    return Err(Refusal::Assembly {
                        problem: format!("ptxas fatal   : Unresolved extern function '{next}'"),
                    });
                }
                continue;
            };
            local =
                local.saturating_add(body.local.checked_next_multiple_of(8).unwrap_or(u64::MAX));
            shared = shared.saturating_add(body.shared);
            registers = registers.max(body.registers);
            instructions = instructions.saturating_add(body.instructions);
            let mut uses: Vec<&str> = body.uses.keys().copied().collect();
            uses.sort_unstable();
            open.extend(uses.into_iter().filter(|name| seen.insert(*name)));
        }
        if shared > runner.shared_per_block.into() {
            return Err(Refusal::Assembly {
                problem: format!(
                    "ptxas error   : Entry function '{name}' uses too much shared data (0x{shared:x} bytes, 0x{:x} max)",
                    runner.shared_per_block
                ),
            });
        }
        attributes.shared = shared as u32;
        attributes.local = u32::try_from(local).unwrap_or(u32::MAX);
        attributes.constant = constant;
        attributes.registers = registers_of(registers, instructions, &function.bounds);
        attributes.ptx_version = self.target;
        attributes.binary_version = runner.architecture;
        Ok(Kernel {
            name: CString::new(name).unwrap_or_default(),
            params: function.params.clone(),
            attributes,
            bounds: function.bounds,
            instructions,
            hazards: function
                .body
                .as_ref()
                .map_or_else(Vec::new, |body| body.hazards.clone()),
        })
    }
}

fn known_nothing(function: Option<&Function<'_>>) -> bool {
    function.is_none_or(|function| function.body.is_none())
}

/// As many registers as do not cost a warp: a part of an SM has 512 for each lane of its warps.
fn spread(wanted: u32) -> u32 {
    const OF_LANE: u32 = 512;
    const MOST: u32 = 254;
    let warps = OF_LANE / wanted.clamp(8, OF_LANE / 2);
    (OF_LANE / warps / 8 * 8).min(MOST)
}

/// The registers of a thread as ptxas counts them on sm_90: 4 where there is nothing to do, else what is live and a few
/// for addresses, from 32 on in steps of 8.
fn registers_of(live: u32, instructions: u32, bounds: &Bounds) -> u32 {
    const MOST: u32 = 255;
    let wanted = match (instructions, live) {
        (0..=1, _) => 4,
        (_, 0..=6) => 8,
        (_, live @ 7..=23) => (live + 1).next_multiple_of(2),
        (_, live) => spread(live.saturating_add(6).next_multiple_of(8)),
    };
    let threads = bounds.required.map(|block| {
        let sides = block.iter();
        sides.fold(1u32, |product, side| product.saturating_mul(*side))
    });
    // A bounded block must find room on an SM, as often as its kernel wants.
    let by_block = threads.or(bounds.max_threads).map_or(MOST, |threads| {
        let blocks = bounds.min_blocks.unwrap_or(1).max(1);
        let each = 65_536 / threads.max(1) / blocks;
        (each / 8 * 8).max(8)
    });
    wanted
        .min(bounds.max_registers.unwrap_or(MOST))
        .min(by_block)
        .min(MOST)
}

fn variable(declared: Declared<'_>, space: &str, visible: bool) -> Variable {
    Variable {
        name: declared.name.to_owned(),
        space: match space {
            "const" => Space::Constant,
            _ if declared.managed => Space::Managed,
            _ => Space::Global,
        },
        size: declared.size,
        align: declared.align,
        contents: declared.initial.contents,
        pointers: declared.initial.pointers,
        visible,
    }
}

/// `.file 1 "name", 123, 456`: it has no semicolon.
fn file(cursor: &mut Cursor<'_>) -> Result<(), Refusal> {
    cursor.count()?;
    let Token::Text(_) = cursor.token else {
        return cursor.unexpected();
    };
    cursor.take()?;
    while cursor.skip(b',')? {
        cursor.count()?;
    }
    Ok(())
}

/// What stands between a function's parameters and its body.
fn bounds(cursor: &mut Cursor<'_>) -> Result<Bounds, Refusal> {
    let mut bounds = Bounds::default();
    while let Token::Dot(name) = cursor.token {
        cursor.take()?;
        match name {
            "maxntid" => {
                let sides = sides(cursor)?;
                bounds.max_threads = Some(product(cursor, sides)?);
            }
            "reqntid" => bounds.required = Some(sides(cursor)?),
            "minnctapersm" | "maxnctapersm" => bounds.min_blocks = Some(cursor.count_32()?),
            "maxnreg" => bounds.max_registers = Some(cursor.count_32()?),
            "reqnctapercluster" => bounds.cluster = Some(sides(cursor)?),
            "maxclusterrank" => bounds.max_cluster = Some(cursor.count_32()?),
            "explicitcluster" | "noreturn" | "blocksareclusters" => {}
            "abi_preserve" | "abi_preserve_control" => {
                cursor.count()?;
            }
            "pragma" => cursor.skip_statement()?,
            "attribute" => cursor.skip_block(b'(', b')')?,
            _ => return Err(cursor.error(format!("Unknown directive '.{name}'"))),
        }
    }
    Ok(bounds)
}

fn product(cursor: &Cursor<'_>, sides: [u32; 3]) -> Result<u32, Refusal> {
    sides
        .iter()
        .try_fold(1u32, |product, side| product.checked_mul(*side))
        .ok_or_else(|| cursor.error("Too many threads"))
}

/// One to three numbers.
fn sides(cursor: &mut Cursor<'_>) -> Result<[u32; 3], Refusal> {
    let mut sides = [1; 3];
    sides[0] = cursor.count_32()?;
    for side in &mut sides[1..] {
        if !cursor.skip(b',')? {
            break;
        }
        *side = cursor.count_32()?;
    }
    if sides.contains(&0) {
        return Err(cursor.error("Dimension must be positive"));
    }
    Ok(sides)
}
