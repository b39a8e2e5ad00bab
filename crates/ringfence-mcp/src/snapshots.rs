//! Snapshots, as the tools take and tell them.

use crate::server::State;
use crate::tools::{Answer, Given};
use ringfence_session::gateway::client;
use ringfence_session::snapshot::{Change, Select, Snapshot};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// In a sandbox that has a gateway for snapshots, they are made there: the store is not visible
/// inside.
pub(crate) fn inside(state: &State, mut request: Value) -> Option<Answer> {
    client::socket()?;
    request["tree"] = state.sandbox.config().workdir.to_string_lossy().into();
    Some(client::ask(&request).map(|mut answer| {
        if let Some(fields) = answer.as_object_mut() {
            fields.remove("ok");
        }
        answer
    }))
}

pub(crate) fn select(state: &State, given: &Given<'_>) -> Result<Select, String> {
    let workdir = &state.sandbox.config().workdir;
    let paths = given.words("paths")?.into_iter().map(|word| {
        let path = workdir.join(&word);
        let relative = path.strip_prefix(workdir).map(Path::to_owned);
        relative.map_err(|_| format!("{} is not in {}", path.display(), workdir.display()))
    });
    let only = paths.collect::<Result<Vec<PathBuf>, String>>()?;
    Ok(Select { only, ..Select::default() })
}

pub(crate) fn texts(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

pub(crate) fn row(snapshot: &Snapshot) -> Value {
    json!({
        "id": snapshot.id, "name": snapshot.name, "origin": snapshot.origin.word(),
        "created_ms": snapshot.created, "files": snapshot.files, "bytes": snapshot.bytes,
    })
}

pub(crate) fn change(change: &Change) -> Value {
    json!({"path": change.path.to_string_lossy(), "what": change.what.word()})
}
