//! Graphs that captures fill. An H200 refuses to destroy one (`fixtures/oracle/cuda-streams-580.txt`); that this holds whoever else ends, and for
//! graphs in a graph, follows from it and no card was asked.

use crate::told::told;
use crate::{CUDA, out, start};

const ILLEGAL_STATE: u32 = 401;
const RELAXED: u64 = 2;
const UNSUPPORTED: u32 = 900;
const INVALIDATED: u32 = 901;

/// What a call gives.
fn made(name: &str, rest: &[u64]) -> u64 {
    let mut value = 0u64;
    let words: Vec<u64> = [&[out(&mut value)], rest].concat();
    assert_eq!(CUDA.call(name, &words), 0, "{name}");
    value
}

fn capture_to(graph: u64) -> u64 {
    let stream = made("cuStreamCreate", &[0]);
    let words = [stream, graph, 0, 0, 0, RELAXED];
    assert_eq!(CUDA.call("cuStreamBeginCaptureToGraph", &words), 0);
    stream
}

fn end(stream: u64) -> (u32, bool) {
    let mut graph = 7u64;
    let code = CUDA.call("cuStreamEndCapture", &[stream, out(&mut graph)]);
    (code, graph != 0)
}

fn in_a_child(act: impl FnOnce()) {
    let said = told(|| {
        start();
        act();
        vec!["answered".to_owned()]
    });
    assert_eq!(said, ["answered"]);
}

#[test]
fn a_capture_that_ends_refused_leaves_a_graph_that_another_fills() {
    in_a_child(|| {
        let graph = made("cuGraphCreate", &[0]);
        let broken = capture_to(graph);
        assert_eq!(CUDA.call("cuCtxSynchronize", &[]), UNSUPPORTED);
        let whole = capture_to(graph);
        assert_eq!(end(broken), (INVALIDATED, false));
        assert_eq!(CUDA.call("cuGraphDestroy", &[graph]), ILLEGAL_STATE);
        assert_eq!(end(whole), (0, true));
        assert_eq!(CUDA.call("cuGraphDestroy", &[graph]), 0);
    });
}

#[test]
fn a_graph_is_not_destroyed_while_a_capture_fills_one_in_it() {
    in_a_child(|| {
        let (parent, child) = (made("cuGraphCreate", &[0]), made("cuGraphCreate", &[0]));
        let node = made("cuGraphAddChildGraphNode", &[parent, 0, 0, child]);
        let mut embedded = 0u64;
        let words = [node, out(&mut embedded)];
        assert_eq!(CUDA.call("cuGraphChildGraphNodeGetGraph", &words), 0);
        let stream = capture_to(embedded);
        assert_eq!(CUDA.call("cuGraphDestroy", &[parent]), ILLEGAL_STATE);
        assert_eq!(CUDA.call("cuGraphDestroyNode", &[node]), ILLEGAL_STATE);
        assert_eq!(end(stream), (0, true));
        assert_eq!(CUDA.call("cuGraphDestroyNode", &[node]), 0);
        assert_eq!(CUDA.call("cuGraphDestroy", &[parent]), 0);
    });
}
