//! Rows, runs and spawns as they are made from what was asked for.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use offspring_protocol::{
    Event, PoolId, RunId, RunRecord, RunState, SessionData, SessionId, SessionInfo, Usage,
    event::SpawnSessionStart,
};
use tokio_util::sync::CancellationToken;

use crate::{
    error::Refused,
    ids,
    live::{Changing, OpenRun},
    run::NewChild,
    silence::Heard,
};

pub(crate) fn pending(session: &SessionId, run: RunId, ordinal: u32) -> RunRecord {
    RunRecord {
        id: run,
        session_id: session.clone(),
        ordinal,
        state: RunState::Pending,
        error: None,
        usage: Usage::default(),
        process: None,
        opened_at: ids::now(),
        ended_at: None,
        left_out_bytes: 0,
    }
}

pub(crate) fn open_run(record: RunRecord) -> Arc<OpenRun> {
    Arc::new(OpenRun {
        heard: Heard::default(),
        id: record.id.clone(),
        stop: CancellationToken::new(),
        ended: CancellationToken::new(),
        changing: Mutex::new(Changing { record, forced: None }),
    })
}

pub(crate) fn info_of(data: &SessionData, path: &[SessionId]) -> SessionInfo {
    SessionInfo {
        id: data.id.clone(),
        root: data.root_id.clone(),
        parent: data.parent_id.clone(),
        path: path.into(),
        depth: data.depth,
        agent_name: data.agent_name.clone(),
        agent_type: data.agent_type.clone(),
        source_type: data.source_type.clone(),
    }
}

/// The row of a child: inherits project and directory; unset stays unset (L3).
pub(crate) fn child_data(
    new: &NewChild,
    parent: Option<&SessionData>,
    pool_id: Option<PoolId>,
) -> Result<SessionData, Refused> {
    let id = new.id.clone().unwrap_or_else(ids::session);
    id.check_storable()?;
    new.agent_name.check_storable()?;
    let inherited = parent.and_then(|parent| parent.cwd.as_deref());
    let cwd = match (&new.cwd, inherited) {
        (Some(own), Some(base)) => Some(Path::new(base).join(own)),
        (Some(own), None) => Some(PathBuf::from(own)),
        (None, base) => base.map(PathBuf::from),
    };
    let cwd = match cwd {
        Some(cwd) => Some(cwd.into_os_string().into_string().map_err(|path| Refused::Cwd {
            cwd: path.to_string_lossy().into_owned(),
            problem: "is not valid UTF-8",
        })?),
        None => None,
    };
    if let (Some(_), Some(cwd)) = (&new.cwd, &cwd) {
        check_directory(cwd)?;
    }
    let now = ids::now();
    Ok(SessionData {
        root_id: parent.map_or_else(|| id.clone(), |parent| parent.root_id.clone()),
        parent_id: parent.map(|parent| parent.id.clone()),
        depth: parent.map_or(0, |parent| parent.depth + 1),
        id,
        project_id: parent.and_then(|parent| parent.project_id.clone()),
        cwd,
        agent_name: new.agent_name.clone(),
        agent_type: new.agent_type.clone(),
        source_type: Some(new.source_type.clone()),
        pool_id: pool_id.or_else(|| parent.and_then(|parent| parent.pool_id.clone())),
        task: new.task.clone(),
        title: (!new.description.is_empty()).then(|| new.description.clone()),
        model: new.model.clone(),
        settings: None,
        // Narrower, never wider (L17).
        limits: parent.map_or_else(|| new.limits.clone(), |parent| parent.limits.narrowed_by(&new.limits)),
        external: new.external.clone(),
        created_at: now,
        last_active_at: now,
        metadata: new.metadata.clone(),
        version: "1".to_owned(),
    })
}

pub(crate) fn spawn_event(child: &SessionInfo, parent: &SessionId, new: &NewChild) -> Event {
    Event::SpawnSessionStart(SpawnSessionStart {
        child_session_id: child.id.clone(),
        parent_session_id: parent.clone(),
        tool_call_id: new.tool_call.clone(),
        spawn_mechanism: new.mechanism,
        source_name: new.agent_name.clone(),
        source_type: new.source_type.clone(),
        agent_type: new.agent_type.clone(),
        depth: child.depth,
        path: child.path.to_vec(),
        description: new.description.clone(),
        task: new.task.clone(),
        model_id: new.model.clone(),
        metadata: new.metadata.clone(),
    })
}

pub(crate) fn check_directory(cwd: &str) -> Result<(), Refused> {
    let problem = match std::fs::metadata(cwd) {
        // Said first: what the directory of this process has under that name is not meant (O23).
        _ if !Path::new(cwd).is_absolute() => "is not absolute",
        Ok(found) if !found.is_dir() => "is not a directory",
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist",
        Err(_) => "cannot be read",
    };
    Err(Refused::Cwd { cwd: cwd.to_owned(), problem })
}
