//! Who descends from whom: ancestry, routing, lifecycle and usage roll-up of session trees, as pure state machines.
#![deny(missing_docs)]
