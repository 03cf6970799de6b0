//! Newline-delimited JSON-RPC frames over any byte stream.
#![deny(missing_docs)]
