//! Who delegates: subagent, workers, parallel team and sequential team run over the session manager.
#![deny(missing_docs)]
