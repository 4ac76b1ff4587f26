//! The `extant` command.
fn main() {}
