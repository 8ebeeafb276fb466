// result[i] = source[i] * factor + addend, word by word, for the first `count` words.

struct Constants {
    // Where each buffer begins in what is bound for it, in words (Launch).
    source_start: u32,
    result_start: u32,
    count: u32,
    factor: u32,
    addend: u32,
}

var<immediate> constants: Constants;

@group(0) @binding(0) var<storage, read_write> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> result: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < constants.count {
        let word = source[constants.source_start + id.x];
        result[constants.result_start + id.x] = word * constants.factor + constants.addend;
    }
}
