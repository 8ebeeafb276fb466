//! Images in the client's memory: nothing says how long they are but themselves.

use super::Host;
use crate::image::{ELF_MAGIC, cubin, fatbin};

/// Bytes of one page; a read never runs into the next one untold.
const PAGE: u64 = 4096;
/// No image is larger.
const MOST: usize = 1 << 30;

/// Reads as much of this process's own memory as is mapped, up to `len` bytes.
fn read(address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; len];
    let mut done = 0;
    while done < len {
        let at = address + done as u64;
        let step = ((PAGE - at % PAGE) as usize).min(len - done);
        let local = libc::iovec {
            iov_base: bytes[done..].as_mut_ptr().cast(),
            iov_len: step,
        };
        let remote = libc::iovec {
            iov_base: at as *mut libc::c_void,
            iov_len: step,
        };
        // SAFETY: both vectors describe one range; the kernel checks the other side's mapping.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        if read <= 0 {
            // Where the call is forbidden, a client's pointer is trusted as the driver trusts it.
            let forbidden = std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT);
            if read < 0 && forbidden {
                super::copy_host(bytes[done..].as_mut_ptr() as u64, at, step as u64);
                done += step;
                continue;
            }
            break;
        }
        done += read as usize;
    }
    bytes.truncate(done);
    bytes
}

/// Bytes whose number the client gave.
pub fn bytes(pointer: Host, len: usize) -> Vec<u8> {
    read(pointer.0, len.min(MOST))
}

/// An image of any kind: an ELF file or a fat binary as long as its header says, a text to its NUL. `None` for NULL.
pub fn image(pointer: Host) -> Option<Vec<u8>> {
    const HEAD: usize = 64;
    if pointer.0 == 0 {
        return None;
    }
    let head = read(pointer.0, HEAD);
    if head.starts_with(&ELF_MAGIC) {
        let len = cubin::length(&head).unwrap_or(0).clamp(HEAD, MOST);
        return Some(read(pointer.0, len));
    }
    if head.starts_with(&fatbin::MAGIC) {
        let len = fatbin::length(&head).unwrap_or(0).clamp(HEAD, MOST);
        return Some(read(pointer.0, len));
    }
    let mut text = Vec::new();
    while text.len() < MOST {
        let at = pointer.0 + text.len() as u64;
        let step = (PAGE - at % PAGE) as usize;
        let piece = read(at, step);
        let end = piece.iter().position(|byte| *byte == 0);
        text.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
        if end.is_some() || piece.len() < step {
            break;
        }
    }
    Some(text)
}

/// The fat binary that a compiler's wrapper points to, or the image itself.
pub fn unwrapped(pointer: Host) -> Option<Vec<u8>> {
    const WRAPPER: usize = 24;
    if pointer.0 == 0 {
        return None;
    }
    let head = read(pointer.0, WRAPPER);
    match head.get(8..16) {
        Some(inner) if head.starts_with(&fatbin::WRAPPER_MAGIC) => {
            image(Host(u64::from_le_bytes(inner.try_into().ok()?)))
        }
        _ => image(pointer),
    }
}
