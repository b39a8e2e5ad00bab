//! Snapshots, as the tools take and tell them: what a sandbox's own gateway does, and no more. A tool sees the
//! session's snapshots and nobody else's; what the policy denies or protects is neither shown nor reverted.

use crate::within::Sandbox;
use ringfence_session::gateway::{Actor, Peer, Scope, Tree, client, give_up_capabilities};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Mutex;

/// The session's snapshots: who acts for it, by its identifier. One that was begun in another's place has its own.
#[derive(Debug, Default)]
pub(crate) struct Snapshots(Mutex<Option<(String, Actor)>>);

impl Snapshots {
    /// Does one thing. In a sandbox that has a gateway it is done there: the store is not visible inside.
    ///
    /// # Errors
    /// One sentence: it cannot be done, or may not.
    pub fn ask(&self, sandbox: &Sandbox, mut request: Value) -> Result<Value, String> {
        request["tree"] = sandbox.config().workdir.to_string_lossy().into();
        let mut answer = match client::socket() {
            Some(_) => client::ask(&request)?,
            None => self.here(sandbox, &request)?,
        };
        if let Some(fields) = answer.as_object_mut() {
            fields.remove("ok");
        }
        Ok(answer)
    }

    fn here(&self, sandbox: &Sandbox, request: &Value) -> Result<Value, String> {
        let mut actor = self.0.lock().map_err(|_| "the snapshots are in disorder")?;
        let session = sandbox.id()?;
        let (_, actor) = match &mut *actor {
            Some(acts) if acts.0 == session => acts,
            other => {
                let scope = scope(sandbox, session.clone())?;
                other.insert((session, Actor::new(scope, sandbox.teller())))
            }
        };
        // As a gateway's thread does it: what a command without capabilities cannot do is not done for it.
        let request = request.to_string();
        let answer = std::thread::scope(|scope| {
            let act = || {
                give_up_capabilities();
                actor.answer(request.as_bytes(), &Peer::new(std::process::id() as i32))
            };
            scope.spawn(act).join().map_err(|_| "the snapshots are in disorder")
        })?;
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        }
    }
}

/// What the session may have done: as the plan of its own options has it.
fn scope(sandbox: &Sandbox, session: String) -> Result<Scope, String> {
    let planned = sandbox.plan(&["--gateway"], &[OsStr::new("cat")])?;
    let unknown = || {
        let said = String::from_utf8_lossy(&planned.stderr);
        match said.trim().trim_start_matches("ringfence: ") {
            "" => "this session has no snapshots".to_owned(),
            said => format!("this session has no snapshots: {said}"),
        }
    };
    let plan: Value = serde_json::from_slice(&planned.stdout).map_err(|_| unknown())?;
    let paths = |list: &Value| -> Option<Vec<PathBuf>> {
        list.as_array()?.iter().map(|path| path.as_str().map(PathBuf::from)).collect()
    };
    let tree = |tree: &Value| {
        let path = PathBuf::from(tree["tree"].as_str()?);
        Some(Tree { path, except: paths(&tree["except"])? })
    };
    let trees = plan["gateway"]["trees"].as_array();
    let trees = trees.and_then(|trees| trees.iter().map(tree).collect::<Option<Vec<_>>>());
    Ok(Scope { session, trees: trees.ok_or_else(unknown)? })
}
