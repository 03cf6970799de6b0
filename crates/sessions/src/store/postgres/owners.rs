//! Who owns a tree, and whether it lives.

use std::sync::LazyLock;

use deadpool_postgres::{Object, Pool};
use offspring_protocol::{OwnerId, SessionId};

use super::{fault::Fault, link::LIVES, read::get};
use crate::store::{Fence, OwnerState, StoreError};

/// Whether that owner's lease has not run out. One that nobody knows has none.
pub(super) async fn state(client: &Object, owner: OwnerId) -> Result<OwnerState, Fault> {
    static SQL: LazyLock<String> =
        LazyLock::new(|| format!("SELECT FROM owners o WHERE o.id = $1 AND {LIVES}"));
    if owner.check_storable().is_err() {
        return Ok(OwnerState::Dead);
    }
    let statement = client.prepare_cached(&SQL).await?;
    let found = client.query_opt(&statement, &[&owner.as_str()]).await?;
    Ok(if found.is_some() { OwnerState::Alive } else { OwnerState::Dead })
}

/// Makes `ours` the owner of a tree whose epoch is still `from_epoch`. `again` where the answer to the same was lost.
pub(super) async fn claim(
    client: &Object,
    root: SessionId,
    from_epoch: u64,
    ours: OwnerId,
    again: bool,
) -> Result<Fence, Fault> {
    const SQL: &str = "UPDATE trees t SET owner = $3, epoch = t.epoch + 1 FROM sessions s \
                       WHERE s.id = $1 AND s.key = t.key AND t.epoch = $2";
    const NOW: &str = "SELECT t.owner, t.epoch FROM trees t JOIN sessions s ON s.key = t.key WHERE s.id = $1";
    root.check_storable()?;
    let statement = client.prepare_cached(SQL).await?;
    let epoch = from_epoch.wrapping_add(1);
    let claimed =
        client.execute(&statement, &[&root.as_str(), &from_epoch.cast_signed(), &ours.as_str()]).await?;
    if claimed == 0 {
        let statement = client.prepare_cached(NOW).await?;
        let now = client.query_opt(&statement, &[&root.as_str()]).await?;
        let Some(now) = now else { return Err(StoreError::Unknown { id: root }.into()) };
        // The attempt whose answer was lost may have taken it: nobody else writes our name.
        let taken = get::<&str>(&now, 0)? == ours.as_str() && get::<i64>(&now, 1)?.cast_unsigned() == epoch;
        if !(again && taken) {
            return Err(StoreError::Fenced { root }.into());
        }
    }
    Ok(Fence { root, owner: ours, epoch })
}

/// Ends a lease at once.
pub(super) async fn give_back(pool: &Pool, owner: &OwnerId) -> Result<(), Fault> {
    pool.get().await?.execute("DELETE FROM owners WHERE id = $1", &[&owner.as_str()]).await?;
    Ok(())
}

/// Forgets leases that ran out long ago: without one an owner is dead just the same.
pub(super) async fn forget(client: &Object) -> Result<(), Fault> {
    client.execute("DELETE FROM owners WHERE expires_at < clock_timestamp() - interval '1 day'", &[]).await?;
    Ok(())
}
