//! Uses `offspring-protocol` alone, as a stranger's program would.

pub use offspring_protocol as protocol;
