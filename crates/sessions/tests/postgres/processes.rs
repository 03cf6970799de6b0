//! Many processes on one database.

use std::path::Path;

use offspring_protocol::SessionId;
use offspring_sessions::store::{SessionStore, StoreError, TreeQuery, Write};
use rustix::process::Signal;

use crate::{
    open,
    other_process::{Other, hear, say},
    place,
    planted::{Planted, SPAWN_LINES, check_tree, id, line, log},
    short_lived, until_dead,
};

/// What another process does.
pub(crate) async fn play(part: &str, address: &Path, argument: &str) {
    let address = address.to_str().unwrap().parse().unwrap();
    match part {
        "endless writer" => write_until_the_end(&short_lived(&address).await, argument).await,
        "maker of ids" => make_ids(&open(&address).await).await,
        part => panic!("no part {part}"),
    }
}

/// Says the name of each child whose commit was acknowledged, and why the first was not.
async fn write_until_the_end(store: &dyn SessionStore, root: &str) {
    let planted = Planted::new(store, root).await;
    say(store.owner().as_str());
    for number in 0.. {
        let name = format!("{root} {number}");
        let said = match planted.spawn(&name, 1 + number * SPAWN_LINES).await {
            Ok(_) => say(&name),
            Err(StoreError::Fenced { .. }) => {
                // It stays so, whatever is tried.
                let again = planted.write(vec![Write::Append(line(&planted.root.id, 1, "x"))]).await;
                assert!(matches!(again, Err(StoreError::Fenced { .. })), "{again:?}");
                say("fenced");
                hear();
                return;
            }
            Err(error) => panic!("{error:?}"),
        };
        if !said {
            return;
        }
    }
}

/// For each name that comes: tries to make a child of that name and says what came of it.
async fn make_ids(store: &dyn SessionStore) {
    let owner = store.owner();
    let planted = Planted::new(store, &format!("root of {owner}")).await;
    say(owner.as_str());
    while let Some(name) = hear() {
        let mut data = crate::planted::child(&planted.root, &name);
        data.title = Some(owner.to_string());
        match planted.write(vec![Write::Session(std::sync::Arc::new(data))]).await {
            Ok(_) => say("made"),
            Err(StoreError::Taken { owner, .. }) => say(owner.as_str()),
            Err(error) => panic!("{error:?}"),
        };
    }
}

/// A schema, and its address as another process is given it.
fn shared(test: &str) -> Option<(offspring_sessions::store::postgres::PostgresAddress, String)> {
    let server = place::server(test)?;
    let address = place::fresh(&server);
    let separator = if server.contains('?') { '&' } else { '?' };
    let given = format!("{server}{separator}schema={}", address.schema());
    Some((address, given))
}

#[tokio::test]
async fn l13_an_owner_that_was_stopped_beyond_its_lease_writes_nothing_when_it_goes_on() {
    let Some((address, given)) = shared("l13_stopped") else { return };
    let store = short_lived(&address).await;
    // Stopped again and again: at one time it is in the middle of a commit.
    for round in 0..3 {
        let root = format!("root {round}");
        let mut other = Other::start("endless writer", Path::new(&given), &root);
        let owner = other.line().unwrap();
        for _ in 0..5 + 3 * round {
            other.line().unwrap();
        }
        other.signal(Signal::STOP);
        until_dead(&store, &owner).await;
        // A transaction that it has begun does not keep us from it.
        let epoch = store.trees(TreeQuery::Root(id(&root))).await.unwrap().remove(0).fence.epoch;
        let fence = store.claim(id(&root), epoch).await.unwrap();
        assert_eq!(fence.epoch, 2);
        let before = log(&store, &id(&root)).await;
        let names = check_tree(&store, &id(&root)).await;
        other.signal(Signal::CONT);
        let said: Vec<String> =
            std::iter::from_fn(|| other.line()).take_while(|said| said != "fenced").collect();
        // What it had been told before it was stopped, and nothing else.
        assert!(said.iter().all(|name| names.contains(name)), "{said:?}");
        assert_eq!(log(&store, &id(&root)).await, before);
        let next = before.len() as u64 + 1;
        let planted = Planted { store: &store, fence, root: crate::planted::root(&root) };
        planted.write(vec![Write::Append(line(&planted.root.id, next, "ours"))]).await.unwrap();
        other.finish();
    }
}

#[tokio::test]
async fn o24_a_writer_killed_20_times_leaves_all_that_was_acknowledged() {
    let Some((address, given)) = shared("o24_killed") else { return };
    let store = open(&address).await;
    let mut owners = Vec::new();
    for round in 0..20_usize {
        let root = format!("root {round}");
        let mut other = Other::start("endless writer", Path::new(&given), &root);
        owners.push(other.line().unwrap());
        let mut acknowledged: Vec<String> = (0..(round * 7) % 20).map(|_| other.line().unwrap()).collect();
        other.kill();
        acknowledged.extend(std::iter::from_fn(|| other.line()));
        let names = check_tree(&store, &id(&root)).await;
        assert!(names.starts_with(&acknowledged), "{root}: {names:?} does not hold {acknowledged:?}");
    }
    for owner in owners {
        until_dead(&store, &owner).await;
    }
}

#[tokio::test]
async fn o6_of_two_processes_that_make_one_id_one_wins_and_the_other_learns_who() {
    let Some((address, given)) = shared("o6_two_processes") else { return };
    let given = Path::new(&given);
    let mut both = [Other::start("maker of ids", given, ""), Other::start("maker of ids", given, "")];
    let owners = [both[0].line().unwrap(), both[1].line().unwrap()];
    let store = open(&address).await;
    for round in 0..30 {
        let name = format!("x{round}");
        both[round % 2].tell(&name);
        both[1 - round % 2].tell(&name);
        let said = [both[0].line().unwrap(), both[1].line().unwrap()];
        let winner = usize::from(said[1] == "made");
        assert_eq!(said[winner], "made");
        assert_eq!(said[1 - winner], owners[winner]);
        let found = store.session(SessionId::new(name).unwrap()).await.unwrap().unwrap();
        assert_eq!(found.data.title.as_ref(), Some(&owners[winner]));
    }
}
