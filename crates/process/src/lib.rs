//! A child process in its own group: explicit environment, bounded stderr, close ladder, reaping, identity and a guard that outlives the program.
#![deny(missing_docs)]
