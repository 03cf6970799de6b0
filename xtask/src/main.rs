//! Build, test and check tasks.
fn main() {}
