// Does nothing, with nothing.

@compute @workgroup_size(64)
fn main() {}
