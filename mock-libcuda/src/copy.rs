//! Where addresses lead, and copies of bytes between them.

use abi::cuda::*;
use mock_device::{Bytes, Direction};

use crate::boundary::{Answer, Host, copy_host, crash, fill_host};
use crate::driver::{self, Driver, Ordinal};
use crate::process::{Owner, Process};
use crate::stream::{self, Work};

/// A run of bytes: device memory of one device, or host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub at: u64,
    pub len: u64,
    /// `None`: the host's.
    pub device: Option<Ordinal>,
}

/// What an address must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Memory that the driver knows: device memory, or page-locked or managed host memory.
    Known,
    /// Any; what the driver does not know is the client's word.
    Any,
    /// As when it was asked for, by the time that it is done: what is gone meanwhile nobody reads as the host's.
    Still,
}

impl Process {
    /// INVALID_VALUE for NULL, for device addresses that no one live allocation holds to the end, and for the host's where
    /// the driver must know them.
    pub fn pieces(&self, address: u64, len: u64, need: Need) -> Result<Vec<Piece>, CUresult> {
        if address == 0 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        let piece = |device| {
            Ok(vec![Piece {
                at: address,
                len,
                device,
            }])
        };
        if let Some((_, allocation)) = self.holding(address, len) {
            if allocation.owner == Owner::Narrow {
                let behind = self.behind(allocation.device, address);
                return Ok(vec![Piece {
                    at: behind.ok_or(CUresult::ERROR_INVALID_VALUE)?,
                    len,
                    device: Some(allocation.device),
                }]);
            }
            return piece(Some(allocation.device));
        }
        if let Some((_, device)) = crate::graph_memory::holding(self, address, len) {
            return piece(Some(device));
        }
        if let Some(pieces) = self.mapped_pieces(address, len) {
            return pieces;
        }
        if self.device_at(address).is_some() {
            // An address that nothing lives at is the host's to the driver, which reads or writes it and dies.
            let begins = self.holding(address, 1).is_some()
                || crate::graph_memory::holding(self, address, 1).is_some();
            if need == Need::Any && !begins {
                crash();
            }
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        if need == Need::Known && !self.host_holding(address, len) {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        piece(None)
    }

    /// Moves bytes between two lists of pieces of equal length.
    pub fn transfer(&mut self, driver: &Driver, to: &[Piece], from: &[Piece]) -> Answer {
        let (mut targets, mut sources) = (to.iter().copied(), from.iter().copied());
        let (mut target, mut source) = (targets.next(), sources.next());
        while let (Some(into), Some(out)) = (target, source) {
            let len = into.len.min(out.len);
            self.transfer_run(driver, into, out, len)?;
            let rest = |piece: Piece| Piece {
                at: piece.at + len,
                len: piece.len - len,
                ..piece
            };
            target = if into.len > len {
                Some(rest(into))
            } else {
                targets.next()
            };
            source = if out.len > len {
                Some(rest(out))
            } else {
                sources.next()
            };
        }
        Ok(())
    }

    fn transfer_run(&mut self, driver: &Driver, to: Piece, from: Piece, len: u64) -> Answer {
        match (to.device, from.device) {
            (None, None) => copy_host(to.at, from.at, len),
            (Some(device), None) => {
                self.populate(driver, to.at, len);
                self.arena(driver, device)?
                    .contents
                    .write(to.at, from.at, len);
            }
            (None, Some(device)) => self
                .arena(driver, device)?
                .contents
                .read(from.at, to.at, len),
            (Some(target), Some(source)) => {
                self.populate(driver, to.at, len);
                // In pieces through the host: two devices' contents are two maps.
                const PIECE: u64 = 1 << 20;
                let backwards = from.at < to.at && to.at < from.at + len;
                let mut piece = vec![0u8; PIECE.min(len) as usize];
                let between = piece.as_mut_ptr() as u64;
                let pieces = len.div_ceil(PIECE);
                for at in 0..pieces {
                    let at = if backwards { pieces - 1 - at } else { at } * PIECE;
                    let part = PIECE.min(len - at);
                    let contents = &mut self.arena(driver, source)?.contents;
                    contents.read(from.at + at, between, part);
                    let contents = &mut self.arena(driver, target)?.contents;
                    contents.write(to.at + at, between, part);
                }
            }
        }
        Ok(())
    }

    /// Copies between any two addresses that were good when it was asked for.
    pub fn copy(&mut self, driver: &Driver, to: u64, from: u64, len: u64) -> Answer {
        let target = self.pieces(to, len, Need::Still)?;
        let source = self.pieces(from, len, Need::Still)?;
        self.transfer(driver, &target, &source)
    }

    /// Repeats a unit over pieces, from the first on.
    pub fn fill(&mut self, driver: &Driver, pieces: &[Piece], unit: &[u8]) -> Answer {
        for piece in pieces {
            match piece.device {
                Some(device) => {
                    self.populate(driver, piece.at, piece.len);
                    let contents = &mut self.arena(driver, device)?.contents;
                    contents.fill(piece.at, piece.len, unit);
                }
                None => fill_host(piece.at, piece.len, unit),
            }
        }
        Ok(())
    }
}

/// Both ends of a copy and what each must be.
struct Ends {
    to: (u64, Need),
    from: (u64, Need),
}

/// What a copy is to the device's engines.
pub fn work(to: &[Piece], from: &[Piece], process: &Process) -> Work {
    let bytes = Bytes(to.iter().map(|piece| piece.len).sum());
    let device = |pieces: &[Piece]| pieces.iter().find_map(|piece| piece.device);
    let direction = match (device(to), device(from)) {
        (_, None) => Direction::HostToDevice,
        (None, Some(_)) => Direction::DeviceToHost,
        (Some(to), Some(from)) if to != from => match process.are_joined(to, from) {
            true => Direction::Peer,
            false => Direction::Staged,
        },
        (Some(_), Some(_)) => Direction::DeviceToDevice,
    };
    let locked =
        |piece: &Piece| piece.device.is_some() || process.host_holding(piece.at, piece.len);
    Work::Copy {
        bytes,
        direction,
        pageable: !to.iter().chain(from).all(locked),
    }
}

fn copied(ends: Ends, len: usize, stream: Option<CUstream>) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    match stream {
        Some(stream) => process.stream_context(stream)?,
        None => process.current()?,
    };
    if len == 0 {
        return Ok(());
    }
    let to = process.pieces(ends.to.0, len as u64, ends.to.1)?;
    let from = process.pieces(ends.from.0, len as u64, ends.from.1)?;
    let work = work(&to, &from, &process);
    let act = move |process: &mut Process, driver: &Driver| {
        // The ends were checked; contents that are gone by now have nowhere to go.
        let _ = process.transfer(driver, &to, &from);
    };
    match stream {
        Some(stream) => stream::enqueue(&mut process, driver, stream, work, act),
        None => stream::enqueue_and_wait(driver, process, work, act),
    }
}

macro_rules! copies {
    ($($name:ident $asynchronous:ident ($to:ty: $into:expr, $to_need:ident) <- ($from:ty: $out:expr, $from_need:ident);)*) => { $(
        pub fn $name(to: $to, from: $from, len: usize) -> Answer {
            let ends = Ends { to: ($into(to), Need::$to_need), from: ($out(from), Need::$from_need) };
            copied(ends, len, None)
        }

        pub fn $asynchronous(to: $to, from: $from, len: usize, stream: CUstream) -> Answer {
            let ends = Ends { to: ($into(to), Need::$to_need), from: ($out(from), Need::$from_need) };
            copied(ends, len, Some(stream))
        }
    )* };
}
fn device(address: CUdeviceptr) -> u64 {
    address
}
fn host(address: Host) -> u64 {
    address.0
}
copies! {
    any any_async (CUdeviceptr: device, Any) <- (CUdeviceptr: device, Any);
    host_to_device host_to_device_async (CUdeviceptr: device, Known) <- (Host: host, Any);
    device_to_host device_to_host_async (Host: host, Any) <- (CUdeviceptr: device, Known);
    device_to_device device_to_device_async (CUdeviceptr: device, Known) <- (CUdeviceptr: device, Known);
}

/// Peer copies name their contexts: NULL is the current one. The addresses alone say where the memory is.
fn peers(to: CUcontext, from: CUcontext) -> Answer {
    let process = driver::get()?.lock();
    for context in [to, from] {
        if !context.is_null() {
            process.context_followed(context)?;
        }
    }
    Ok(())
}

pub fn peer(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    len: usize,
) -> Answer {
    driver::get()?.lock().current()?;
    if len == 0 {
        return Ok(());
    }
    peers(to_context, from_context)?;
    device_to_device(to, from, len)
}

pub fn peer_async(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    len: usize,
    stream: CUstream,
) -> Answer {
    driver::get()?.lock().stream_context(stream)?;
    if len == 0 {
        return Ok(());
    }
    peers(to_context, from_context)?;
    {
        let mut process = driver::get()?.lock();
        let line = process.line_of(stream)?;
        crate::capture::forbids_waiting(&mut process, stream, line)?;
    }
    device_to_device_async(to, from, len, stream)
}
