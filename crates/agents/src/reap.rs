//! The second net: processes of runs whose owner died together with their guards (rule L14).

use offspring_process::ProcessIdentity;
use offspring_sessions::Recovered;

/// Ends what still lives of the interrupted runs, by pid, start time and boot id; gives the number of
/// processes that were ended.
///
/// Blocking: it waits for the processes to be gone, seconds at most.
#[must_use]
pub fn leftovers(recovered: &Recovered) -> usize {
    let mut ended = 0;
    for text in &recovered.processes {
        let identity: ProcessIdentity = match text.parse() {
            Ok(identity) => identity,
            Err(error) => {
                tracing::warn!(%error, "a stored process identity cannot be read");
                continue;
            }
        };
        match identity.kill_leftovers() {
            Ok(leftovers) => ended += leftovers.killed,
            Err(error) => tracing::warn!(%error, "the processes of an interrupted run cannot be looked at"),
        }
    }
    ended
}
