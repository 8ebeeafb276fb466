// result[count - 1 - i] = source[i].

struct Constants {
    source_start: u32,
    result_start: u32,
    count: u32,
}

var<immediate> constants: Constants;

@group(0) @binding(0) var<storage, read_write> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> result: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < constants.count {
        result[constants.result_start + constants.count - 1u - id.x] = source[constants.source_start + id.x];
    }
}
