//! `run --overlay`: layers made before the run, and what becomes of them after it.

use crate::consent::{Answer, Terminal};
use crate::error::Fault;
use crate::fork::Source;
use ringfence_policy as policy;
use ringfence_sandbox::plan::{Apart, Found, MountOp, Plan};
use ringfence_sandbox::text;
use ringfence_sandbox::vm::Machine;
use ringfence_sandbox::{launch, state};
use ringfence_session::overlay::{
    self, Copied, End, Guard, InUse, Names, Overlay, Record, Select, Tree,
};
use ringfence_session::{SessionError, cli, place};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// The layers of a run that goes on.
#[derive(Debug)]
pub struct Layers {
    session: PathBuf,
    id: String,
    end: End,
    /// What they are layers of, in their order.
    trees: Vec<(PathBuf, bool)>,
    /// The differences are shown in full, and dropped.
    dry: bool,
    in_use: Option<InUse>,
    /// Whom to ask in the end.
    terminal: Option<Terminal>,
}

/// Makes the layers, if the plan wants some, and tells the plan where they are. Those of a fork hold what the `source`'s hold, which waits until
/// its machine says that all is copied.
///
/// # Errors
/// They cannot be made; a tree holds them.
pub fn begin(
    plan: &mut Plan,
    id: &str,
    dry: bool,
    source: Option<(&Source, &RefCell<Machine>)>,
) -> Result<Option<Layers>, Fault> {
    let Some(apart) = &plan.overlay else { return Ok(None) };
    let sessions = place::sessions().map_err(Fault::of)?;
    let session = sessions.join(id);
    let mut trees = Vec::new();
    for step in &plan.mounts {
        if let MountOp::NamedHome { from, .. } = &step.op {
            state::make_directory(from).map_err(Fault::of)?;
        }
    }
    for (path, directory) in plan.overlaid() {
        // What is learnt from sees the whole home. The state is hidden in it, and what it writes is dropped.
        if session.starts_with(path) && place::learning().is_none() {
            return Err(Fault::usage(format!(
                "--overlay cannot keep writes to {} apart: ringfence's own state is in it ({}); \
                 make a smaller tree writable, or move the state with XDG_STATE_HOME",
                path.display(),
                session.display()
            )));
        }
        trees.push(Tree::of(path, directory).map_err(Fault::of)?);
    }
    let end = match apart.end {
        policy::Overlay::Ask => End::Ask,
        policy::Overlay::Commit => End::Commit,
        policy::Overlay::Discard => End::Discard,
        policy::Overlay::Keep => End::Keep,
    };
    let mut record = Record::new(id, end, trees);
    protect(&mut record, apart);
    let begun = match source {
        Some((source, machine)) => {
            let mut told = |copied| {
                let told = machine.borrow_mut().copied(copied == Copied::All);
                told.map_err(SessionError::Usage)
            };
            overlay::begin_as(&session, &record, &sessions.join(source.session()), &mut told)
                .map_err(|why| source.refused(&why.to_string()))
        }
        None => overlay::begin(&session, &record).map_err(Fault::of),
    };
    let in_use = Some(begun?);
    let trees = overlaid(plan);
    let terminal = Some(end).filter(|end| *end == End::Ask).and_then(|_| Terminal::now());
    let layers = Layers { session, id: id.to_owned(), end, trees, dry, in_use, terminal };
    layers.serve(plan)?;
    Ok(Some(layers))
}

/// What a plan wants layers of.
fn overlaid(plan: &Plan) -> Vec<(PathBuf, bool)> {
    plan.overlaid().map(|(path, directory)| (path.to_owned(), directory)).collect()
}

/// Notes what no commit changes.
fn protect(record: &mut Record, apart: &Apart) {
    let word = |guarded: &policy::Guarded| {
        let value = serde_json::to_value(guarded).unwrap_or_default();
        value.as_str().unwrap_or("plain").to_owned()
    };
    record.guards = apart
        .guards
        .iter()
        .map(|step| Guard {
            path: step.path.clone(),
            guarded: word(&step.guarded),
            present: step.found != Found::Absent,
            rule: text::source(&step.rule),
        })
        .collect();
    record.names = apart
        .guarded_trees
        .iter()
        .map(|tree| {
            let names = |list: &[(std::borrow::Cow<'static, str>, policy::Guarded)]| {
                list.iter().map(|(name, guarded)| (name.to_string(), word(guarded))).collect()
            };
            let (top, nested) = (names(&tree.absent), names(&tree.nested));
            Names { tree: tree.tree.clone(), top, nested }
        })
        .collect();
}

impl Layers {
    /// Tells a plan where they are: each that is made for the run, the first and those after it.
    ///
    /// # Errors
    /// It wants others.
    pub fn serve(&self, plan: &mut Plan) -> Result<(), Fault> {
        if overlaid(plan) != self.trees {
            return Err(Fault::usage(
                "--overlay cannot keep writes apart: what is writable changed while the sandbox was \
                 planned again; nothing was run: try once more",
            ));
        }
        plan.keep_apart(&overlay::directory(&self.session));
        Ok(())
    }

    /// What the run changed, for its record.
    pub fn rows(&self) -> Vec<ringfence_session::ledger::Event> {
        let rows = |overlay: Overlay| Ok(crate::changes::apart(&overlay, &overlay.changes()?));
        // What cannot be read is told when it is to be committed or shown.
        Overlay::open(&self.session).and_then(rows).unwrap_or_default()
    }

    /// Does with the changes what was asked for; the exit code is the command's, but for a commit
    /// that failed.
    pub fn end(mut self, code: u8) -> u8 {
        drop(self.in_use.take());
        // What is learnt from is removed by who watches it: each call of ours would wait for that one.
        if place::learning().is_some() {
            return code;
        }
        match self.settle() {
            Ok(()) => code,
            Err(error) => {
                ringfence_sys::say!("ringfence: {}", policy::shown::message(&error.to_string()));
                ringfence_sys::say!(
                    "ringfence: the changes are kept: ringfence overlay diff|commit|discard {}",
                    self.id
                );
                if code == 0 { 125 } else { code }
            }
        }
    }

    fn settle(&self) -> Result<(), SessionError> {
        if overlay::remove_if_empty(&self.session)? {
            return Ok(());
        }
        let found = Overlay::open(&self.session)?;
        let changes = match self.end {
            End::Discard if !self.dry => return found.discard(false),
            End::Commit => return self.commit(&found),
            _ => found.changes()?,
        };
        if changes.is_empty() {
            return found.discard(false);
        }
        if self.dry {
            ringfence_sys::say::text(format_args!("{}", cli::differences(&found, &changes)));
            return found.discard(false);
        }
        ringfence_sys::say::text(format_args!("{}", cli::summary(&changes)));
        match &self.terminal {
            Some(terminal) => self.ask(terminal, found),
            None => {
                self.say_kept();
                Ok(())
            }
        }
    }

    fn say_kept(&self) {
        ringfence_sys::say!(
            "ringfence: these changes were kept apart: ringfence overlay diff|commit|discard {}",
            self.id
        );
    }

    fn commit(&self, found: &Overlay) -> Result<(), SessionError> {
        ringfence_session::wrote::told_to(ringfence_sandbox::written);
        let done = found.commit(&Select::default())?;
        cli::tell(&done, &self.id);
        if done.conflicts.is_empty() {
            return Ok(());
        }
        Err(SessionError::Usage("the changes were not committed".to_owned()))
    }

    /// The changes stay kept, whatever is no answer.
    fn ask(&self, terminal: &Terminal, found: Overlay) -> Result<(), SessionError> {
        const QUESTION: &str =
            "ringfence: commit these changes? [y]es, [n]o: drop them, [d]iff, [k]eep: ";
        loop {
            let answer = terminal.ask(QUESTION);
            let Answer::Said(word) = &answer else {
                self.say_kept();
                if answer == Answer::Interrupted {
                    launch::die_of_interrupt();
                }
                return Ok(());
            };
            match word.as_str() {
                "y" | "yes" => return self.commit(&found),
                "n" | "no" => return found.discard(false),
                "d" | "diff" => ringfence_sys::say::text(format_args!(
                    "{}",
                    cli::differences(&found, &found.changes()?)
                )),
                "k" | "keep" => {
                    self.say_kept();
                    return Ok(());
                }
                _ => ringfence_sys::say!("ringfence: answer y, n, d or k"),
            }
        }
    }
}

impl Drop for Layers {
    /// A launch that failed leaves nothing; what was written is kept all the same.
    fn drop(&mut self) {
        if self.in_use.take().is_some() {
            let _ = overlay::remove_if_empty(&self.session);
            remove_directory(&self.session);
        }
    }
}

/// Nothing but the overlay was in it.
fn remove_directory(session: &Path) {
    let _ = std::fs::remove_dir(session);
}

/// `ringfence overlay diff|commit|discard SESSION [PATH...]`
///
/// # Errors
/// One sentence.
pub fn overlay(arguments: Vec<std::ffi::OsString>) -> Result<u8, Fault> {
    ringfence_session::wrote::told_to(ringfence_sandbox::written);
    ringfence_session::snapshot::fault::from_environment();
    cli::overlay(arguments).map_err(Fault::usage)
}
