//! A running pool: manifest, node factories, supervision, limits and recovery.
#![deny(missing_docs)]

pub mod manifest;
