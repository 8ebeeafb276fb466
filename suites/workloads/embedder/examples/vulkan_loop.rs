//! A Vulkan compute loop for `benches/compute.py --programs vulkan --vulkan THIS`: each step gives [`LAUNCHES`] kernels over 256 MiB, each a
//! submission, and waits for them all. It speaks that bench's protocol: says `loaded` and `ready`, each followed by a line that it waits for, then
//! runs for the seconds that are its argument and tells when each step ended, in seconds, as one list of JSON.

mod common;

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use embedder::kernels::{AFFINE, groups};
use embedder::{Buffer, Host, Launch, OwnContext, Runtime, Settings, Usage};

const WORDS: u32 = 1 << 26;
const BYTES: u64 = 4 * WORDS as u64;
const LAUNCHES: usize = 20;
const WARM_UP: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: f64 = std::env::args()
        .nth(1)
        .ok_or("say for how many seconds")?
        .parse()?;
    let runtime = Runtime::new(common::loader()?, Host::systems(), Settings::default());
    say("loaded")?;
    let context = runtime.create_context(&OwnContext::default())?;
    runtime.acquire_memory_allocator(context)?;
    let (mut source, mut result) = (Buffer::new(BYTES), Buffer::new(BYTES));
    runtime.allocate(context, &mut source, Usage::DeviceLocal)?;
    runtime.allocate(context, &mut result, Usage::DeviceLocal)?;
    let launch = Launch {
        kernel: &AFFINE,
        buffers: &[&source, &result],
        scalars: &[WORDS, 3, 1],
        groups: groups(WORDS),
    };
    let step = || -> embedder::Result<()> {
        let given: Vec<_> = (0..LAUNCHES)
            .map(|_| runtime.launch(context, &launch))
            .collect::<Result<_, _>>()?;
        given.into_iter().try_for_each(|id| runtime.wait(id))
    };
    for _ in 0..WARM_UP {
        step()?;
    }
    say("ready")?;
    let (begun, mut ends) = (Instant::now(), Vec::new());
    while begun.elapsed() < Duration::from_secs_f64(seconds) {
        step()?;
        ends.push(begun.elapsed().as_secs_f64());
    }
    println!("{ends:?}");
    runtime.free(&mut source)?;
    runtime.free(&mut result)?;
    runtime.device_release(context)?;
    Ok(())
}

/// Says where it is, and waits until it may go on.
fn say(word: &str) -> io::Result<()> {
    println!("{word}");
    io::stdin().read_line(&mut String::new()).map(drop)
}
