//! What the ledger costs: one reserve, commit and release of a 2 MiB block. Each figure has a null test beside it, the same thing
//! measured again; a difference smaller than theirs means nothing.

use criterion::{Criterion, criterion_group};
use ledger::{Bytes, DeviceIndex, Ledger, SLOTS, Setup};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const DEVICE: DeviceIndex = DeviceIndex(0);
const BLOCK: Bytes = Bytes::mib(2);
/// Beyond what a lease covers: announced and summed each time.
const LARGE: Bytes = Bytes::gib(1);
const THREADS: u32 = 8;
const PROCESSES: usize = 4;
/// The argument by which the benchmark runs itself as one of its processes.
const WORKER: &str = "--ledger-worker";

fn attach(path: &Path) -> Ledger {
    let mut setup = Setup::default();
    setup.budgets[0] = Some(Bytes::gib(100));
    Ledger::attach(path, &setup).unwrap()
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("ledger");
    (place, path)
}

fn cycle(ledger: &Ledger, bytes: Bytes) {
    ledger.reserve(DEVICE, black_box(bytes)).unwrap().commit();
    ledger.release(DEVICE, black_box(bytes));
}

fn cycles(ledger: &Ledger, count: u64) -> Duration {
    let start = Instant::now();
    (0..count).for_each(|_| cycle(ledger, BLOCK));
    start.elapsed()
}

/// A figure and its null test.
fn twice(criterion: &mut Criterion, name: &str, mut measure: impl FnMut(u64) -> Duration) {
    let mut group = criterion.benchmark_group(name);
    for label in ["figure", "null"] {
        group.bench_function(label, |bencher| bencher.iter_custom(&mut measure));
    }
    group.finish();
}

fn alone(criterion: &mut Criterion) {
    let (_place, path) = place();
    let ledger = attach(&path);
    twice(criterion, "ledger/alone", |count| cycles(&ledger, count));
    twice(
        criterion,
        "ledger/alone, 1 GiB, beyond the lease",
        |count| {
            let start = Instant::now();
            (0..count).for_each(|_| cycle(&ledger, LARGE));
            start.elapsed()
        },
    );
}

/// What a thread waits for its own operation, and the machine's throughput turned round.
fn threads(criterion: &mut Criterion) {
    let (_place, path) = place();
    let ledger = attach(&path);
    let run = |count| {
        let barrier = Barrier::new(THREADS as usize);
        let begin = Instant::now();
        let total: Duration = std::thread::scope(|scope| {
            let work = || {
                barrier.wait();
                cycles(&ledger, count)
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        (total / THREADS, begin.elapsed() / THREADS)
    };
    twice(
        criterion,
        "ledger/8 threads, each thread's latency",
        |count| run(count).0,
    );
    twice(criterion, "ledger/8 threads, aggregate", |count| {
        run(count).1
    });
}

/// A process that runs cycles when told how many.
struct Worker {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(path: &Path) -> Worker {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .arg(WORKER)
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (orders, answers) = (
            process.stdin.take().unwrap(),
            process.stdout.take().unwrap(),
        );
        Worker {
            process,
            orders,
            answers: BufReader::new(answers),
        }
    }

    fn say(&mut self, count: u64) {
        writeln!(self.orders, "{count}").unwrap();
    }

    fn answer(&mut self) -> Duration {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        Duration::from_nanos(line.trim().parse().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn processes(criterion: &mut Criterion) {
    let (_place, path) = place();
    let mut workers: Vec<Worker> = (0..PROCESSES).map(|_| Worker::start(&path)).collect();
    let mut run = |count| {
        let begin = Instant::now();
        workers.iter_mut().for_each(|worker| worker.say(count));
        let total: Duration = workers.iter_mut().map(Worker::answer).sum();
        (total / PROCESSES as u32, begin.elapsed() / PROCESSES as u32)
    };
    twice(
        criterion,
        "ledger/4 processes, each process's latency",
        |count| run(count).0,
    );
    twice(criterion, "ledger/4 processes, aggregate", |count| {
        run(count).1
    });
}

fn crowd(criterion: &mut Criterion) {
    let (_place, path) = place();
    let crowd: Vec<Ledger> = (0..1_000.min(SLOTS - 1)).map(|_| attach(&path)).collect();
    for ledger in &crowd {
        ledger.reserve(DEVICE, BLOCK).unwrap().commit();
    }
    let last = &crowd[crowd.len() - 1];
    twice(criterion, "ledger/1,000 slots in use", |count| {
        cycles(last, count)
    });
    twice(
        criterion,
        "ledger/1,000 slots in use, 1 GiB, beyond the lease",
        |count| {
            let start = Instant::now();
            (0..count).for_each(|_| cycle(last, LARGE));
            start.elapsed()
        },
    );
}

fn work(path: &Path) {
    let ledger = attach(path);
    for line in std::io::stdin().lock().lines() {
        let count = line.unwrap().parse().unwrap();
        println!("{}", cycles(&ledger, count).as_nanos());
    }
}

criterion_group!(benches, alone, threads, processes, crowd);

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let [_, role, path] = &arguments[..]
        && role == WORKER
    {
        work(Path::new(path));
        return ExitCode::SUCCESS;
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
    ExitCode::SUCCESS
}
