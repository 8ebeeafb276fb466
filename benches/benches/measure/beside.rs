//! Processes of the tenant that hold a context each, while something is measured.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use abi::cuda::CUresult;

use crate::driver::Driver;

const READY: &str = "ready";

/// Does `what` beside so many processes, each of which is started to call [`stand_by`].
pub fn beside(processes: usize, stand: impl Fn() -> Command, what: impl FnOnce()) {
    println!("beside {processes} processes of the tenant");
    let begun = || {
        let mut command = stand();
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        piped.spawn().expect("a child")
    };
    let mut others: Vec<Child> = (0..processes).map(|_| begun()).collect();
    for other in &mut others {
        let mut line = String::new();
        let output = other.stdout.as_mut().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), READY);
    }
    what();
    for other in &mut others {
        drop(other.stdin.take());
        other.wait().expect("an end");
    }
}

/// A process that holds a context, until its standard input ends.
pub fn stand_by() {
    assert_eq!(Driver::open().begin(), CUresult::SUCCESS);
    println!("{READY}");
    let _ = std::io::stdin().read(&mut [0]);
}
