//! Graphs that captures fill, beside what a card was asked (`fixtures/oracle/captures-580.txt`, which `suites/cli/tests/captures.rs` compares): what
//! follows from that, or from NVIDIA's documentation.

use crate::told::told;
use crate::{CUDA, out, start};

const ILLEGAL_STATE: u32 = 401;
const RELAXED: u64 = 2;
const INVALID: u32 = 1;
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

/// A graph with a child, and the child as it lies in it.
fn parent() -> (u64, u64, u64) {
    let (parent, child) = (made("cuGraphCreate", &[0]), made("cuGraphCreate", &[0]));
    let node = made("cuGraphAddChildGraphNode", &[parent, 0, 0, child]);
    let mut embedded = 0u64;
    let words = [node, out(&mut embedded)];
    assert_eq!(CUDA.call("cuGraphChildGraphNodeGetGraph", &words), 0);
    (parent, node, embedded)
}

fn nodes(graph: u64) -> (u32, u64) {
    let mut count = 77u64;
    let code = CUDA.call("cuGraphGetNodes", &[graph, 0, out(&mut count)]);
    (code, count)
}

#[test]
fn a_graph_takes_one_capture_at_a_time() {
    in_a_child(|| {
        let graph = made("cuGraphCreate", &[0]);
        let first = capture_to(graph);
        let second = made("cuStreamCreate", &[0]);
        let words = [second, graph, 0, 0, 0, RELAXED];
        let begin = || CUDA.call("cuStreamBeginCaptureToGraph", &words);
        assert_eq!(begin(), ILLEGAL_STATE);
        assert_eq!(end(first), (0, true));
        assert_eq!(begin(), 0);
        assert_eq!(CUDA.call("cuGraphDestroy", &[graph]), ILLEGAL_STATE);
        assert_eq!(end(second), (0, true));
        assert_eq!(CUDA.call("cuGraphDestroy", &[graph]), 0);
    });
}

#[test]
fn a_capture_into_a_child_goes_on_when_its_node_is_gone() {
    in_a_child(|| {
        let (parent, node, child) = parent();
        let stream = capture_to(child);
        assert_eq!(CUDA.call("cuGraphDestroyNode", &[node]), 0);
        let memory = made("cuMemAllocAsync", &[4096, stream]);
        assert_eq!(CUDA.call("cuMemFreeAsync", &[memory, stream]), 0);
        assert_eq!(nodes(child), (0, 2));
        assert_eq!(end(stream), (0, true));
        assert_eq!(nodes(child), (INVALID, 77));
        assert_eq!(CUDA.call("cuGraphDestroy", &[parent]), 0);
    });
}

#[test]
fn a_childs_graph_outlives_a_capture_that_ends_refused() {
    in_a_child(|| {
        let (parent, _, child) = parent();
        let stream = capture_to(child);
        assert_eq!(CUDA.call("cuCtxSynchronize", &[]), UNSUPPORTED);
        assert_eq!(end(stream), (INVALIDATED, false));
        made("cuGraphInstantiateWithFlags", &[parent, 0]);
    });
}

#[test]
fn no_node_leaves_a_graph_that_a_capture_fills() {
    in_a_child(|| {
        let graph = made("cuGraphCreate", &[0]);
        let mut node = made("cuGraphAddEmptyNode", &[graph, 0, 0]);
        let stream = made("cuStreamCreate", &[0]);
        let words = [stream, graph, out(&mut node), 0, 1, RELAXED];
        assert_eq!(CUDA.call("cuStreamBeginCaptureToGraph", &words), 0);
        let destroy = || CUDA.call("cuGraphDestroyNode", &[node]);
        assert_eq!(destroy(), ILLEGAL_STATE);
        made("cuMemAllocAsync", &[4096, stream]);
        assert_eq!(end(stream), (0, true));
        assert_eq!(destroy(), 0);
        assert_eq!(nodes(graph), (0, 1));
        made("cuGraphInstantiateWithFlags", &[graph, 0]);
    });
}

#[test]
fn addresses_of_graphs_that_are_gone_serve_again() {
    const SIZE: u64 = 1 << 40;
    // More than a process can address.
    const TIMES: u64 = (1 << 48) / SIZE;
    in_a_child(|| {
        for _ in 0..TIMES {
            let graph = made("cuGraphCreate", &[0]);
            let stream = capture_to(graph);
            made("cuMemAllocAsync", &[SIZE, stream]);
            assert_eq!(end(stream), (0, true));
            assert_eq!(CUDA.call("cuGraphDestroy", &[graph]), 0);
        }
    });
}
