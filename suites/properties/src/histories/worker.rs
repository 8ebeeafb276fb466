//! One of several processes: carries its threads' steps out and writes each call down before it is made and after it is answered, so that
//! what was written outlives whoever kills it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use abi::cuda::{CUdeviceptr, CUresult};
use cases::clients::{self, Gpu};
use cases::ffi::cuda::{Array, Context, Cuda, Stream};
use cases::ffi::vulkan::{Code, Memory};
use harness::Failure;
use harness::servant;
use mock_device::World;
use serde::{Deserialize, Serialize};

use super::history::{Answer, Deed, Time};
use super::program::{ROW, Route, Step};

/// What a worker is started with.
pub const WORD: &str = "__history";

/// A line for a worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// The steps of each thread, from that time on. Notes go to files in the directory, one for each thread.
    Run {
        threads: Vec<Vec<Step>>,
        start: Time,
        notes: PathBuf,
    },
    /// Ask for a figure, which has the enforcer look for the dead.
    Look,
}

/// A line of a thread's notes. Takes are numbered by thread.
#[derive(Debug, Serialize, Deserialize)]
pub enum Note {
    Begin { at: Time, deed: Deed },
    End { at: Time, answer: Answer },
}

/// Where a thread of a process writes.
pub fn notes(directory: &Path, process: usize, thread: usize) -> PathBuf {
    directory.join(format!("{process}-{thread}.notes"))
}

/// The child's side. `None` where this process is none.
pub fn child_main() -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    if args.next()? != WORD {
        return None;
    }
    let world = PathBuf::from(args.next()?);
    let number: usize = args.next()?.parse().ok()?;
    let worker = match Worker::begin(&world, number) {
        Ok(worker) => worker,
        Err(failure) => {
            servant::answer(&failure.to_string());
            return Some(ExitCode::FAILURE);
        }
    };
    servant::answer("ready");
    for line in io::stdin().lines().map_while(Result::ok) {
        match serde_json::from_str::<Order>(&line).map(|order| worker.obey(&order)) {
            Ok(Ok(())) => servant::answer("done"),
            Ok(Err(trouble)) => servant::answer(&trouble.to_string()),
            Err(trouble) => servant::answer(&trouble.to_string()),
        }
    }
    Some(ExitCode::SUCCESS)
}

struct Worker {
    number: usize,
    world: World,
    cuda: Cuda,
    context: Context,
    gpu: Gpu,
}

/// What a thread holds, and by which of its calls it was taken.
struct Held {
    of: usize,
    what: What,
}

enum What {
    Plain(CUdeviceptr),
    Physical(u64),
    Ordered(CUdeviceptr),
    Array(Array),
    Vulkan(Memory),
}

impl Worker {
    fn begin(world: &Path, number: usize) -> Result<Self, Failure> {
        let world = World::open(world)?;
        let cuda = clients::cuda_without_context()?;
        let context = clients::context(&cuda, 0)?;
        let gpu = Gpu::first()?;
        Ok(Self {
            number,
            world,
            cuda,
            context,
            gpu,
        })
    }

    fn obey(&self, order: &Order) -> io::Result<()> {
        let Order::Run {
            threads,
            start,
            notes: directory,
        } = order
        else {
            let told = self.cuda.memory_info();
            return told
                .granted()
                .map(drop)
                .map_err(|code| io::Error::other(format!("cuMemGetInfo_v2 answered {code:?}")));
        };
        std::thread::scope(|scope| {
            let started = threads.iter().enumerate().map(|(number, steps)| {
                let path = notes(directory, self.number, number);
                scope.spawn(move || self.thread(steps, *start, &path))
            });
            let started: Vec<_> = started.collect();
            let joined = started.into_iter().map(|thread| {
                let ended = thread.join();
                ended.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
            });
            joined.collect()
        })
    }

    fn thread(&self, steps: &[Step], start: Time, path: &Path) -> io::Result<()> {
        let mut file = File::create(path)?;
        let code = self.cuda.set_current(self.context);
        if code != CUresult::SUCCESS {
            return Err(io::Error::other(format!(
                "cuCtxSetCurrent answered {code:?}"
            )));
        }
        while self.world.now().0 < start {
            std::hint::spin_loop();
        }
        let (mut calls, mut held) = (0, Vec::new());
        let free = |held: Held, file: &mut File| -> io::Result<()> {
            self.note(file, Deed::Free { of: held.of }, || {
                (self.free(held.what), ())
            })
        };
        for step in steps {
            match *step {
                Step::Nap { micros } => {
                    std::thread::sleep(std::time::Duration::from_micros(micros))
                }
                Step::Free { .. } if held.is_empty() => continue,
                Step::Free { nth } => {
                    let nth = usize::from(nth) % held.len();
                    free(held.swap_remove(nth), &mut file)?;
                    calls += 1;
                }
                Step::Take { route, bytes } => {
                    let deed = Deed::Take { route, bytes };
                    let what = self.note(&mut file, deed, || self.take(route, bytes))?;
                    held.extend(what.map(|what| Held { of: calls, what }));
                    calls += 1;
                }
            }
        }
        held.into_iter().try_for_each(|held| free(held, &mut file))
    }

    /// One call, written down before and after.
    fn note<T>(
        &self,
        file: &mut File,
        deed: Deed,
        call: impl FnOnce() -> (Answer, T),
    ) -> io::Result<T> {
        let begin = Note::Begin {
            at: self.world.now().0,
            deed,
        };
        file.write_all(line(&begin)?.as_bytes())?;
        let (answer, out) = call();
        let end = Note::End {
            at: self.world.now().0,
            answer,
        };
        file.write_all(line(&end)?.as_bytes())?;
        Ok(out)
    }

    fn take(&self, route: Route, bytes: u64) -> (Answer, Option<What>) {
        let (code, what) = match route {
            Route::Plain => {
                let answer = self.cuda.allocate(bytes);
                (answer.code, What::Plain(answer.out))
            }
            Route::Physical => {
                let answer = self.cuda.create_memory(0, bytes);
                (answer.code, What::Physical(answer.out))
            }
            Route::Ordered => {
                let answer = self.cuda.allocate_async(Stream::Legacy, bytes);
                (answer.code, What::Ordered(answer.out))
            }
            Route::Array => {
                let answer = self.cuda.create_array(ROW, bytes / (4 * ROW));
                (answer.code, What::Array(answer.out))
            }
            Route::Vulkan => {
                return match self.gpu.device.allocate(self.gpu.memory_type, bytes) {
                    Ok(memory) => (Answer::Done, Some(What::Vulkan(memory))),
                    Err(Code::OUT_OF_DEVICE_MEMORY) => (Answer::NoMemory, None),
                    Err(code) => (Answer::Otherwise(code.to_string()), None),
                };
            }
        };
        (answered(code), (code == CUresult::SUCCESS).then_some(what))
    }

    /// What a pool frees is its own until its stream was waited for: that belongs to the free.
    fn free(&self, what: What) -> Answer {
        answered(match what {
            What::Plain(address) => self.cuda.free(address),
            What::Physical(handle) => self.cuda.release_memory(handle),
            What::Array(array) => self.cuda.destroy_array(array),
            What::Ordered(address) => match self.cuda.free_async(Stream::Legacy, address) {
                CUresult::SUCCESS => self.cuda.synchronize(),
                code => code,
            },
            What::Vulkan(memory) => {
                self.gpu.device.free(memory);
                CUresult::SUCCESS
            }
        })
    }
}

fn answered(code: CUresult) -> Answer {
    match code {
        CUresult::SUCCESS => Answer::Done,
        CUresult::ERROR_OUT_OF_MEMORY => Answer::NoMemory,
        code => Answer::Otherwise(format!("{code:?}")),
    }
}

fn line(note: &Note) -> io::Result<String> {
    let mut line = serde_json::to_string(note)?;
    line.push('\n');
    Ok(line)
}
