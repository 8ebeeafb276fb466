//! The environment that a process began with, in its own memory: what `/proc/self/environ` shows of it, where the kernel does not.

use core::slice;

/// More than this no kernel gives to arguments and environment (a quarter of the stack, 6 MiB at most).
const MOST: usize = 8 << 20;
const RANDOM: usize = 16;

/// As the kernel laid it out (`create_elf_tables` of Linux): above the auxiliary vector lie its strings and random bytes, after zeros the arguments, the
/// environment, and the path of the program. `None` where that cannot be (an emulator's stack).
pub fn in_memory() -> Option<Vec<u8>> {
    // SAFETY: asks what the kernel gave this process; 0 where it gave nothing.
    let of = |entry| unsafe { libc::getauxval(entry) } as usize;
    let (path, random, platform) = (
        of(libc::AT_EXECFN),
        of(libc::AT_RANDOM),
        of(libc::AT_PLATFORM),
    );
    let after_platform = match platform {
        0 => 0,
        // SAFETY: a C string of the kernel's, on this process's first stack.
        platform => platform + unsafe { libc::strlen(platform as *const _) } + 1,
    };
    let begin = after_platform.max(random.checked_add(RANDOM)?);
    let length = path.checked_sub(begin)?;
    if random == 0 || length > MOST {
        return None;
    }
    // SAFETY: from the auxiliary vector's strings to the program's path there is nothing but the first stack, which is never unmapped; what a program
    // writes there meanwhile is bytes all the same.
    let strings = unsafe { slice::from_raw_parts(begin as *const u8, length) };
    let arguments = std::fs::read(super::processes::own("cmdline")).ok()?;
    let first = strings.iter().position(|byte| *byte != 0)?;
    Some(strings.get(first + arguments.len()..)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_says_what_the_kernel_shows() {
        let shown = std::fs::read("/proc/self/environ").expect("this process's environment");
        assert_eq!(in_memory().expect("a stack"), shown);
    }
}
