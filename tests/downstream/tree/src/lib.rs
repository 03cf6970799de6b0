//! Uses `offspring-tree` alone, as a stranger's program would.

pub use offspring_tree as tree;
