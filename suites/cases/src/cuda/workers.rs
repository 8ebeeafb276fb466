//! A parent that shares its tensors with workers by cuIpc handles, as torch.multiprocessing does: they open all of them, work on them in turn, take
//! memory of their own besides, and die as workers die.

use abi::cuda::{CUdeviceptr, CUresult};
use harness::{Bytes, Failure, Peer, Session, cases, ensure, ensure_eq, fail, roles};

use crate::clients::{cuda, fill};
use crate::ffi::cuda::{Cuda, IpcHandle, Open};
use crate::greed::{CONTEXT_ROOM, budget, fills};
use crate::tenant::serve;

const OK: CUresult = CUresult::SUCCESS;
const WORKERS: usize = 3;
const TENSORS: usize = 8;
/// A tensor's own allocation.
const TENSOR: Bytes = Bytes::mib(96);
const SHARED: Bytes = Bytes(TENSORS as u64 * TENSOR.0);

/// How a worker comes to be.
#[derive(Clone, Copy, Debug)]
enum Birth {
    /// The parent starts it.
    Spawned,
    /// A shell of the parent forks and executes it.
    Forked,
}

/// A worker, as its parent sees it.
struct Worker(Peer);

impl Worker {
    fn start(session: &Session, birth: Birth) -> Result<Worker, Failure> {
        let launch = session.launch("worker");
        let launch = match birth {
            Birth::Spawned => launch,
            Birth::Forked => launch.through("sh", &["-c", "\"$@\"; exit $?", "sh"]),
        };
        Ok(Worker(launch.start()?))
    }

    fn ask(&mut self, command: &str) -> Result<i64, Failure> {
        self.0.say(command)?;
        self.answer(command)
    }

    fn answer(&mut self, command: &str) -> Result<i64, Failure> {
        let line = self.0.line()?;
        match line.parse() {
            Ok(number) => Ok(number),
            Err(_) => fail!("a worker answered \"{line}\" to \"{command}\""),
        }
    }

    fn opens(&mut self, handle: &IpcHandle) -> Result<(), Failure> {
        let code = self.ask(&format!("open {}", handle.text()))?;
        ensure_eq!(code, i64::from(OK.0), "cuIpcOpenMemHandle_v2 in a worker");
        Ok(())
    }

    /// Finds `value` in every tensor, and leaves the next one there.
    fn works(&mut self, value: u8) -> Result<(), Failure> {
        let right = self.ask(&format!("work {value}"))?;
        ensure_eq!(
            right,
            TENSORS as i64,
            "tensors that hold {value} for a worker"
        );
        Ok(())
    }
}

/// What is at a tensor's beginning and end, if that is one value.
fn held(cuda: &Cuda, tensor: CUdeviceptr) -> Result<Option<u8>, Failure> {
    let (mut first, mut last) = ([0; 64], [0; 64]);
    let end = tensor + TENSOR.0 - 64;
    let codes = (cuda.read(tensor, &mut first), cuda.read(end, &mut last));
    ensure_eq!(codes, (OK, OK), "cuMemcpyDtoH_v2 of a tensor");
    let value = first[0];
    let all = first.iter().chain(&last).all(|byte| *byte == value);
    Ok(all.then_some(value))
}

fn put(cuda: &Cuda, tensor: CUdeviceptr, value: u8) -> Result<(), Failure> {
    let bytes = [value; 64];
    let end = tensor + TENSOR.0 - 64;
    let codes = (cuda.write(tensor, &bytes), cuda.write(end, &bytes));
    ensure_eq!(codes, (OK, OK), "cuMemcpyHtoD_v2 to a tensor");
    Ok(())
}

cases! {
    /// Tensors that a parent shares with three workers are charged once; what all of them take beside them at the same time is within the budget and
    /// no less than it has room for; and whether the workers are killed, end with everything open or close it first, all they took comes back.
    workers_share_their_parents_tensors_within_the_budget {
        kind: Budget, defects: ["R9", "P3"], budget: "0=5GiB",
        entry_points: ["cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle", "cuMemAlloc_v2"],
        unordered: "three workers take at the same time",
    } (session) {
        let (cuda, budget) = (cuda()?, budget(session, 0)?);
        let (mut tensors, mut handles) = (Vec::new(), Vec::new());
        for _ in 0..TENSORS {
            let tensor = cuda.allocate(TENSOR.0);
            ensure_eq!(tensor.code, OK, "a tensor");
            let handle = cuda.export_ipc(tensor.out);
            ensure_eq!(handle.code, OK, "cuIpcGetMemHandle");
            put(&cuda, tensor.out, 0)?;
            tensors.push(tensor.out);
            handles.push(handle.out);
        }
        let mut value = 0;
        for birth in [Birth::Spawned, Birth::Forked, Birth::Spawned] {
            let mut workers = Vec::new();
            for _ in 0..WORKERS {
                workers.push(Worker::start(session, birth)?);
            }
            for worker in &mut workers {
                for handle in &handles {
                    worker.opens(handle)?;
                }
                worker.works(value)?;
                value += 1;
            }
            for &tensor in &tensors {
                ensure_eq!(held(&cuda, tensor)?, Some(value), "what the workers left in a tensor");
            }
            for worker in &mut workers {
                worker.0.say("fill")?;
            }
            let mut taken = SHARED;
            for worker in &mut workers {
                taken += Bytes(worker.answer("fill")? as u64);
            }
            fills(taken, budget, Bytes((1 + WORKERS as u64) * CONTEXT_ROOM.0))?;
            let mut workers = workers.into_iter();
            if let (Birth::Spawned, Some(mut killed)) = (birth, workers.next()) {
                killed.0.kill()?;
            }
            if let Some(mut tidy) = workers.next() {
                ensure_eq!(tidy.ask("close")?, 0, "handles that a worker could not close");
                tidy.0.finish()?;
            }
            for untidy in workers {
                untidy.0.finish()?;
            }
        }
        let rest = fill(&cuda);
        rest.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(rest.bytes + SHARED, budget, CONTEXT_ROOM)?;
        for tensor in tensors {
            ensure_eq!(held(&cuda, tensor)?, Some(value), "a tensor when all workers are dead");
            ensure_eq!(cuda.free(tensor), OK, "cuMemFree_v2 of a tensor");
        }
        let again = cuda.allocate(SHARED.0);
        ensure!(again.code == OK, "what the tensors held is not free again: {:?}", again.code);
        Ok(())
    }
}

roles! {
    /// Opens tensors, works on them and takes what is left, a command a line, and answers each with a number.
    worker(_session, parent) {
        let cuda = cuda()?;
        let (mut opened, mut own) = (Vec::new(), Vec::new());
        serve(parent, |command| {
            let (verb, object) = command.split_once(' ').unwrap_or((command, ""));
            Ok(match verb {
                "open" => {
                    let Some(handle) = IpcHandle::parse(object) else { fail!("\"{command}\" names no handle") };
                    let answer = cuda.open_ipc(Open::Second, &handle);
                    opened.extend(answer.granted());
                    i64::from(answer.code.0)
                }
                "work" => {
                    let Ok(value) = object.parse::<u8>() else { fail!("\"{command}\" names no value") };
                    let mut right = 0;
                    for &tensor in &opened {
                        right += i64::from(held(&cuda, tensor)? == Some(value));
                        put(&cuda, tensor, value + 1)?;
                    }
                    right
                }
                "fill" => {
                    let taken = fill(&cuda);
                    taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
                    own.extend(taken.held);
                    taken.bytes.0 as i64
                }
                "close" => {
                    let closed = opened.drain(..).map(|tensor| cuda.close_ipc(tensor));
                    closed.filter(|code| *code != OK).count() as i64
                }
                _ => fail!("a worker cannot \"{command}\""),
            })
        })
    }
}
