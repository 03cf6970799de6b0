//! `offspring watch`: history, then live, until the run ends (rule L18).

use std::{io, path::PathBuf, process::ExitCode};

use offspring_protocol::{Envelope, Event};

use crate::{
    args::Watch,
    failure::Failure,
    find, show, signals, store,
    text::{out, plain_lines},
};

pub(crate) async fn watch(db: Option<PathBuf>, args: &Watch) -> Result<ExitCode, Failure> {
    let (manager, _) = store::manager(db).await?;
    let top = find::session(&manager, &args.session).await?.data;
    let mut follow = manager.follow(&top.root_id, args.from);
    let mut signals = signals::Signals::listen()?;
    loop {
        let envelope = tokio::select! {
            next = follow.next() => match next? {
                Some(envelope) => envelope,
                None => return Ok(ExitCode::SUCCESS),
            },
            signal = signals.next() => return Ok(ExitCode::from(signal.exit_code())),
        };
        if !envelope.session.path.contains(&top.id) {
            continue;
        }
        let line = if args.json { Some(serde_json::to_string(&*envelope)?) } else { words(&envelope) };
        if let Some(line) = line {
            match out(&format!("{line}\n")) {
                // `watch | head` has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                written => written?,
            }
        }
    }
}

fn words(envelope: &Envelope) -> Option<String> {
    let said = match envelope.event.parse() {
        Ok(Event::TextDelta(delta)) => delta.text.trim_end_matches('\n').to_owned(),
        // Its pieces were shown.
        Ok(Event::MessageComplete(_)) => return None,
        Ok(Event::StatusChanged(status)) => match status.outcome {
            Some(outcome) => format!("= {}", outcome.as_str()),
            None => return None,
        },
        Ok(event) => show::said(&event)?,
        Err(error) => format!("? {error}"),
    };
    let who = format!("{:>5} {}{}", envelope.seq, "  ".repeat(usize::try_from(envelope.session.depth).unwrap_or(0)), envelope.session.agent_name);
    Some(plain_lines(&said).lines().map(|line| format!("{who} │ {line}")).collect::<Vec<_>>().join("\n"))
}
