//! The offspring program.
fn main() {}
