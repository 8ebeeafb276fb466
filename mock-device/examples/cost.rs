//! What the world costs a mock, in ns per call (best of seven runs): run it in release on a quiet machine.

use std::hint::black_box;
use std::time::Instant;

use mock_device::{
    Api, Bytes, DeviceIndex, Engine, FaultPlan, Kind, Nanos, World, WorldSpec, profile,
};

fn best(rounds: u32, mut call: impl FnMut()) -> f64 {
    let run = |call: &mut dyn FnMut()| {
        let began = Instant::now();
        (0..rounds).for_each(|_| call());
        began.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
    };
    (0..7).map(|_| run(&mut call)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = DeviceIndex(0);
    let plan = "[[fault]]\nat = \"cuMemFree_v2\"\nwhen = \"99\"\nthen = \"result:1\"";
    for (name, text) in [("healthy", ""), ("one-fault", plan)] {
        let faults = FaultPlan::parse("cost", text).expect("a plan");
        let path = folder.path().join(name);
        let spec = WorldSpec {
            faults,
            ..WorldSpec::new(profile::embedded("rtx6000-ada*4").expect("a profile"))
        };
        let world = World::create(&path, &spec).expect("a world");
        let consult = best(2_000_000, || {
            _ = black_box(
                world.consult(black_box(Api::Cuda), black_box("cuMemAlloc_v2"), || {
                    Bytes(1)
                }),
            )
        });
        let pair = best(500_000, || {
            world
                .take(device, Kind::Memory, black_box(Bytes::mib(2)))
                .expect("room");
            world.give_back(device, Kind::Memory, Bytes::mib(2));
        });
        let used = best(200_000, || _ = black_box(world.used(device)));
        let submit = best(500_000, || {
            _ = black_box(world.submit(device, Engine::Compute, Nanos::ZERO, Nanos(1)))
        });
        let queued = best(500_000, || {
            _ = black_box(world.submit(device, Engine::Copy, Nanos::ZERO, Nanos(1_000_000)))
        });
        let open = best(200, || drop(World::open(&path).expect("the world")));
        let first = best(200, || {
            let world = World::open(&path).expect("the world");
            world.take(device, Kind::Unlisted, Bytes(1)).expect("room");
        });
        println!(
            "{name}: consult {consult:.1}, take + give_back {pair:.1}, used {used:.1}, submit when idle {submit:.1}, behind others {queued:.1}, open {open:.0}, open + first take + close {first:.0}"
        );
    }
}
