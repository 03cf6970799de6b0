//! Routing costs the depth of a session, whatever else there is (rule T15).

use offspring_protocol::{AgentType, Event, NodeName, SessionId, SessionLimits, event::TextDelta};
use offspring_sessions::{NewChild, NewRoot, Scope, SessionManager, Subscription};
use offspring_tree::{Notification, Router};

use crate::{
    Failed, Setting,
    machine::cpu_time,
    report::{Goal, Report, count},
};

/// Parent edges above the session whose events are routed.
const DEPTH: usize = 4;
/// Sessions there are.
const SIZES: [usize; 3] = [10, 1_000, 100_000];
/// Look-ups, hops, deliveries.
type Counts = [u64; 3];

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> Result<(), Failed> {
    report.title("routing one event of a session at depth 4: look-ups + hops + deliveries");
    let events = setting.size.pick(200, 20_000);
    let mut bus = Vec::new();
    for sessions in SIZES {
        bus.push(on_the_bus(sessions, events).await?);
    }
    print("bus, from emit to the subscriber", &bus, events, report);
    let router: Vec<(Counts, f64)> =
        SIZES.iter().map(|sessions| in_the_router(*sessions, events)).collect::<Result<_, _>>()?;
    print("router of a peer's wire", &router, events, report);
    Ok(())
}

fn print(name: &str, measured: &[(Counts, f64)], events: u64, report: &mut Report) {
    for (sessions, (counts, ns)) in SIZES.iter().zip(measured) {
        let [lookups, hops, deliveries] = counts.map(|total| total / events);
        report.note(&format!("{name}, {sessions} sessions: {lookups} + {hops} + {deliveries} per event"));
        report.figure(&format!("{name}, {sessions} sessions"), &[*ns], "ns of CPU", Goal::None);
    }
    let all: Vec<Counts> = measured.iter().map(|(counts, _)| *counts).collect();
    let same = all.windows(2).all(|pair| pair[0] == pair[1])
        && all.iter().all(|counts| counts.iter().sum::<u64>() > 0);
    report.check("routing costs the same at every size", if same { Ok(()) } else { Err(format!("{all:?}")) });
}

/// One tree with this many sessions: a chain down to the one that talks, everything else beside it.
async fn on_the_bus(sessions: usize, events: u64) -> Result<(Counts, f64), Failed> {
    let manager = SessionManager::detached();
    let root = NewRoot {
        limits: SessionLimits::UNBOUNDED,
        ..NewRoot::new(NodeName::new("node")?, AgentType::Native)
    };
    let root = manager.create_root(root).await?.start("").await?;
    let id = root.context.session().id.clone();
    let new = || Ok::<_, Failed>(NewChild::new(NodeName::new("node")?, AgentType::Native));
    let mut chain = vec![root];
    while let Some(last) = chain.last().filter(|_| chain.len() <= DEPTH) {
        let next = last.context.create_child(new()?).await?.start("").await?;
        chain.push(next);
    }
    let beside = &chain[DEPTH - 1].context;
    let mut held = Vec::new();
    // Many at once, so that the writer takes them together.
    for _ in (chain.len()..sessions).step_by(100) {
        let more = (sessions - chain.len() - held.len()).min(100);
        let mut makes = Vec::with_capacity(more);
        for _ in 0..more {
            makes.push(beside.create_child(new()?));
        }
        for made in futures_util::future::join_all(makes).await {
            held.push(made?);
        }
    }
    let leaf = chain.last().ok_or("a chain has an end")?;
    let mut heard = [
        manager.subscribe(Scope::Subtree(id)),
        manager.subscribe(Scope::Subtree(chain[1].context.session().id.clone())),
        manager.subscribe(Scope::Session(leaf.context.session().id.clone())),
        manager.subscribe(Scope::All),
    ];
    // What is still on its way is not ours to count.
    say(&leaf.context, "begin", 1, &mut heard).await?;
    let before = manager.bus().cost();
    let began = cpu_time();
    say(&leaf.context, "on", events, &mut heard).await?;
    let ns = cpu_time().saturating_sub(began).as_secs_f64() * 1e9 / count(events);
    let after = manager.bus().cost();
    let counts =
        [after.lookups - before.lookups, after.hops - before.hops, after.deliveries - before.deliveries];
    Ok((counts, ns))
}

/// Emits this many events that no other can be merged with, and waits until every subscriber had the last.
async fn say(
    context: &offspring_sessions::RunContext,
    word: &str,
    events: u64,
    heard: &mut [Subscription],
) -> Result<(), Failed> {
    let mut sent = 0;
    while sent < events {
        // Fewer than a queue holds.
        let now = (events - sent).min(1_000);
        for number in 0..now {
            let delta = TextDelta { text: word.to_owned() };
            let thinking = number % 2 == 0;
            context
                .emit(if thinking { Event::ThinkingDelta(delta) } else { Event::TextDelta(delta) })
                .await?;
        }
        for subscription in &mut *heard {
            let mut ours = 0;
            while ours < now {
                let envelopes = subscription.recv_many().await?.ok_or("the bus was closed")?;
                let matching =
                    envelopes.iter().filter(|envelope| envelope.event.data().get().contains(word)).count();
                ours += u64::try_from(matching)?;
            }
        }
        sent += now;
    }
    Ok(())
}

fn in_the_router(sessions: usize, events: u64) -> Result<(Counts, f64), Failed> {
    let mut router = Router::default();
    let chain: Vec<String> = (0..=DEPTH).map(|depth| format!("ses_chain_{depth}")).collect();
    for pair in chain.windows(2) {
        router.route(Notification::Started { parent: &pair[0], child: &pair[1] });
    }
    for number in chain.len()..sessions {
        router.route(Notification::Started {
            parent: &chain[DEPTH - 1],
            child: &format!("ses_beside_{number}"),
        });
    }
    for root in [&chain[0], &chain[1], &chain[DEPTH]] {
        router.subscribe(&SessionId::new(root)?);
    }
    let mut counts = Counts::default();
    let began = cpu_time();
    for _ in 0..events {
        let cost = router.route(Notification::Session { session: &chain[DEPTH] }).cost();
        for (sum, one) in counts.iter_mut().zip([cost.lookups, cost.hops, cost.deliveries]) {
            *sum += one;
        }
    }
    Ok((counts, cpu_time().saturating_sub(began).as_secs_f64() * 1e9 / count(events)))
}
