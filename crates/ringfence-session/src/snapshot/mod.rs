//! Snapshots of a workspace: content-addressed, shared between all snapshots of it.
//!
//! # What holds
//! - **Each file is as it was at one moment**, between two looks at its stamps that agree. A file
//!   that is written to during each of three readings is stored as read, and named in
//!   [`Created::unsettled`]. There is no one moment for the whole tree.
//! - **Equal size is not equal content**: an unchanged file is known by device, inode, size, mode,
//!   owner, links, modification and change time, all in nanoseconds, and a stamp younger than a
//!   clock tick is not trusted. What this cannot see: a write through a mapping that was made, and
//!   first written to, before the last snapshot and has not been flushed since.
//! - **A kill at any point** leaves each operation done or not done; a revert is finished by
//!   [`Store::resume`]. A power cut may take the snapshots of the last seconds, unless the store
//!   is opened `durable`.
//! - **A revert is itself snapshotted first**, so that it can be reverted.
//! - Kept: bytes, modes, owners, links, hard links, empty directories, pipes, holes, the user's
//!   extended attributes, access lists and capabilities, names of any bytes. Not kept: times (so
//!   that `make` sees a reverted file as new), sockets, devices, and what is mounted.

mod ahead;
pub(crate) mod beneath;
mod bounds;
mod closed;
mod codec;
mod compare;
pub(crate) mod content;
mod database;
pub(crate) mod entry;
mod excepted;
pub mod fault;
mod ignored;
pub(crate) mod lock;
mod query;
mod record;
mod retain;
mod revert;
mod room;
mod scan;
pub(crate) mod spent;
mod unopened;

pub use bounds::Most;
pub use compare::{Change, Select, What};
pub use entry::{Entry, Hash, Kind};
pub use query::Version;
pub(crate) use record::check_name;
pub use record::{Ignored, Origin, Snapshot};
pub use retain::Compacted;

use crate::error::{Result, SessionError};
use crate::judged::Names;
use crate::place;
use crate::wrote::Writing;
use compare::{Side, compare};
use database::Database;
use rustix::fd::OwnedFd;
use scan::{Aim, Leave, Scan, Scanner};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the store stands; by default under the user's state directory.
    pub directory: Option<PathBuf>,
    /// Flush the store to the disk in each operation, a revert before it touches the workspace:
    /// whatever a power cut does to the files, both states of them are in the store.
    pub durable: bool,
    /// The store may take no more bytes than this.
    pub limit: Option<u64>,
    /// The store may grow by no more bytes than this while it is open.
    pub growth: Option<u64>,
    /// A snapshot that would take more than this is not made.
    pub most: Option<Most>,
    /// How many snapshots of each automatic kind are kept.
    pub automatic: usize,
    /// How many bytes the automatic ones of a kind may have added to the store together; the newest three are kept anyhow.
    pub automatic_bytes: u64,
    /// The session on whose behalf things are reverted: what is kept before is its own, and no file
    /// gets set-user-ID or set-group-ID.
    pub session: Option<String>,
    /// What is not that session's to change; as [`Select::except`]. Its snapshots may hold it, and a revert to
    /// one of them from outside leaves it out as well.
    pub except: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            directory: None,
            durable: false,
            limit: None,
            growth: None,
            most: None,
            automatic: 10,
            automatic_bytes: 2 << 30,
            session: None,
            except: Vec::new(),
        }
    }
}

/// What to make.
#[derive(Clone, Debug)]
pub struct New {
    /// A name, unique in the workspace.
    pub name: Option<String>,
    /// Who asked.
    pub origin: Origin,
    /// Whether what `.gitignore` names is in it.
    pub ignored: Ignored,
    /// The session it belongs to.
    pub session: Option<String>,
}

impl Default for New {
    fn default() -> New {
        New { name: None, origin: Origin::Manual, ignored: Ignored::Included, session: None }
    }
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// It.
    pub snapshot: Snapshot,
    /// Files that had to be read, because their stamps were new.
    pub read: u64,
    /// Paths that could not be read. They are not in the snapshot, and no revert touches them.
    pub unreadable: Vec<PathBuf>,
    /// Files that were written to all the time.
    pub unsettled: Vec<PathBuf>,
    /// What is no part of the workspace's file system (a mount, a subvolume, a device): it is not in the snapshot, and
    /// no revert touches it.
    pub foreign: Vec<PathBuf>,
}

/// What a revert did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reverted {
    /// The state before, unless nothing had to be done.
    pub before: Option<Snapshot>,
    /// What was put right.
    pub changes: Vec<Change>,
    /// What was not, a sentence each.
    pub kept: Vec<String>,
    /// Some of it could not be read, or the kernel refused to change it (an immutable file): it is as it was.
    pub unread: bool,
}

/// A revert that was interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The id of the snapshot that was reverted to.
    pub snapshot: i64,
    /// The paths it was about.
    pub select: Select,
    /// The id of the snapshot that was made before.
    pub before: i64,
    temporary: Vec<u8>,
}

/// The snapshots of one workspace.
pub struct Store {
    workspace: PathBuf,
    root: OwnedFd,
    database: Database,
    options: Options,
    /// The names in what the session is not to change, once they were asked for.
    names: Option<Arc<Names>>,
}

impl Store {
    /// Opens the store of a workspace, and makes it where there is none.
    ///
    /// # Errors
    /// The workspace or the store cannot be opened, the store is damaged or of a later version.
    pub fn open(workspace: &Path, options: Options) -> Result<Store> {
        let failed = |error| SessionError::call("open", workspace, error);
        let workspace = workspace.canonicalize().map_err(failed)?;
        if workspace == Path::new("/") {
            return Err(SessionError::usage(
                "a snapshot of / would be one of the whole system; name a directory below it",
            ));
        }
        let directory = match &options.directory {
            Some(directory) => directory.clone(),
            None => place::snapshots(&workspace)?,
        };
        place::private_directory(&directory)?;
        fault::point("resolved");
        let root = beneath::open_workspace(&workspace)
            .map_err(|error| SessionError::call("open", &workspace, error))?;
        let database = Database::open(&directory, options.durable)?;
        let grown = options.growth.map(|growth| database.bytes().saturating_add(growth));
        database.limit(options.limit.into_iter().chain(grown).min())?;
        Ok(Store { workspace, root, database, options, names: None })
    }

    /// Whether a workspace has a store, without making one.
    ///
    /// # Errors
    /// There is no home directory.
    pub fn exists(workspace: &Path) -> Result<bool> {
        let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        Ok(place::snapshots(&workspace)?.join("store.db").exists())
    }

    /// The workspace, canonical.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    fn lock(&self) -> Result<lock::Lock> {
        lock::take(&self.database.directory.join("lock"))
    }

    /// Makes a snapshot.
    ///
    /// # Errors
    /// The name is taken or no name; the disk is full; see [`Store::open`].
    pub fn create(&mut self, new: &New) -> Result<Created> {
        if let Some(name) = &new.name {
            check_name(name)?;
        }
        let _lock = self.lock()?;
        self.clean()?;
        let leave = match new.ignored {
            Ignored::Included => Leave::Nothing,
            Ignored::Excluded => Leave::Disk,
        };
        if let Some(most) =
            self.options.most.filter(|_| self.list().is_ok_and(|all| all.is_empty()))
        {
            // Nothing is known yet: all of it would be read.
            bounds::check(&self.root, &most)?;
        }
        let (automatic, bytes) = (self.options.automatic, self.options.automatic_bytes);
        let (created, large) = self.in_batches(|store| {
            store.database.name_is_free(new.name.as_deref())?;
            store.database.added = 0;
            let scan = store.scan(Aim::Keep, leave)?;
            fault::point("record");
            let snapshot = store.record(new, &scan)?;
            let large = store.database.retain(automatic, bytes)?;
            let foreign = closed::foreign(&scan, &store.hidden());
            let Scan { read, unreadable, unsettled, .. } = scan;
            Ok((Created { snapshot, read, unreadable, unsettled, foreign }, large))
        })?;
        if large || self.database.deleted()? >= retain::SWEEP_AFTER {
            self.database.sweep_if_room()?;
        }
        Ok(created)
    }

    /// What differs between a snapshot and a later one, or the workspace as it is.
    ///
    /// # Errors
    /// See [`Store::open`].
    pub fn changes(
        &mut self,
        from: &Snapshot,
        to: Option<&Snapshot>,
        select: &Select,
    ) -> Result<Vec<Change>> {
        if let Some(to) = to {
            let (old, new) = (Side::Stored(from.root), Side::Stored(to.root));
            return compare(&self.database, &old, &new, select);
        }
        let _lock = self.lock()?;
        let leave = from.leave();
        let scan = self.transaction(|store| store.scan(Aim::Look, leave))?;
        compare(&self.database, &Side::Stored(from.root), &Side::Seen(&scan), select)
    }

    /// Makes the workspace, or some paths, what they were. The state before is kept as an
    /// automatic snapshot.
    ///
    /// # Errors
    /// The disk is full, or somebody writes at the same time: what was done stays done, and
    /// [`Store::resume`] finishes it.
    pub fn revert(&mut self, to: &Snapshot, select: &Select) -> Result<Reverted> {
        let _lock = self.lock()?;
        self.clean()?;
        self.revert_locked(to, select)
    }

    fn revert_locked(&mut self, to: &Snapshot, select: &Select) -> Result<Reverted> {
        let writing = Writing::begin();
        let except = match self.options.session {
            None => self.database.excepted(to)?,
            Some(_) => self.options.except.clone(),
        };
        let reverted = self.revert_all(to, select, &except);
        writing.ends_in(&self.workspace);
        reverted
    }

    /// Notes what was scanned, and what of it is not this session's.
    fn record(&mut self, new: &New, scan: &Scan) -> Result<Snapshot> {
        if let Some(session) = &self.options.session {
            self.database.note_excepted(session, &self.options.except)?;
        }
        self.database.record(new, scan)
    }

    fn revert_all(
        &mut self,
        to: &Snapshot,
        select: &Select,
        except: &[PathBuf],
    ) -> Result<Reverted> {
        let temporary = format!(".ringfence-revert-{:08x}", beneath::now() as u32).into_bytes();
        let (automatic, bytes) = (self.options.automatic, self.options.automatic_bytes);
        let outside = self.options.session.is_none();
        let names = match &self.names {
            Some(names) => Arc::clone(names),
            None => Arc::new(Names::excepted(except)),
        };
        self.names = (!outside).then(|| Arc::clone(&names));
        let (mut closed, mut unread) = (closed::Closed::default(), false);
        let narrowed = if outside { excepted::without(select, except) } else { select.clone() };
        let found = self.in_batches(|store| {
            store.database.added = 0;
            let mut scan = store.scan(Aim::Revert, to.leave())?;
            if !scan.unreadable.is_empty() {
                closed = store.open_up(to, &scan.unreadable, &narrowed)?;
                if !closed.is_empty() {
                    scan = store.scan_opened(Aim::Revert, to.leave(), closed.modes())?;
                }
            }
            let changes =
                compare(&store.database, &Side::Stored(to.root), &Side::Seen(&scan), select)?;
            let gone = |c: &Change| {
                c.what == What::Deleted && c.old.as_ref().is_some_and(|e| e.kind == Kind::Socket)
            };
            let mut changes: Vec<Change> = changes.into_iter().filter(|c| !gone(c)).collect();
            let mut held = excepted::hold_back(&mut changes, &narrowed);
            let (left, now) = revert::leave_alone(&mut changes);
            held.extend(left);
            unread = now;
            if !except.is_empty() {
                let tree = (&*store.workspace, &store.root);
                let named = outside.then_some(&select.only[..]);
                held.extend(excepted::judge(&store.database, tree, &names, named, &mut changes)?);
            }
            if changes.is_empty() {
                return Ok((scan, changes, None, held));
            }
            let (ignored, session) = (to.ignored, store.options.session.clone());
            let new = New { origin: Origin::BeforeRevert, ignored, session, ..New::default() };
            let before = store.record(&new, &scan)?;
            let pending = Pending {
                snapshot: to.id,
                select: narrowed.clone(),
                before: before.id,
                temporary: temporary.clone(),
            };
            store.database.set_pending(Some(&pending))?;
            let large = store.database.retain(automatic, bytes)?;
            Ok((scan, changes, Some((before, large)), held))
        })?;
        let (scan, changes, before, mut kept) = found;
        let (before, large) = before.unzip();
        if before.is_some() {
            fault::point("journal");
            let links = match to.links {
                0 => Vec::new(),
                _ => revert::stored_links(&self.database, &to.root)?,
            };
            let mut apply = revert::Apply {
                database: &self.database,
                root: &self.root,
                path: &self.workspace,
                scan: &scan,
                temporary: &temporary,
                links,
                plain: self.options.session.is_some(),
                kept: Vec::new(),
                refused: false,
                opened: Vec::new(),
                spent: spent::Spent::on(&self.root),
            };
            apply.run(&changes)?;
            kept.append(&mut apply.kept);
            unread |= apply.refused;
            closed.settle(&changes);
            fault::point("done");
            self.database.set_pending(None)?;
        }
        if large == Some(true) {
            self.database.sweep_if_room()?;
        }
        Ok(Reverted { before, changes, kept, unread })
    }

    /// The revert that was interrupted, if one was.
    ///
    /// # Errors
    /// The store is damaged.
    pub fn pending(&self) -> Result<Option<Pending>> {
        self.database.pending()
    }

    /// Finishes it. What was written to the workspace since then is in a snapshot of its own.
    ///
    /// # Errors
    /// As [`Store::revert`].
    pub fn resume(&mut self) -> Result<Option<Reverted>> {
        let _lock = self.lock()?;
        let Some(pending) = self.database.pending()? else { return Ok(None) };
        self.clean()?;
        let to = self.database.by_id(pending.snapshot)?;
        let done = self.revert_locked(&to, &pending.select)?;
        // Nothing was left to do.
        self.database.set_pending(None)?;
        Ok(Some(done))
    }

    /// Leaves the workspace as the interruption left it.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn abandon(&mut self) -> Result<()> {
        let _lock = self.lock()?;
        self.clean()?;
        self.database.set_pending(None)
    }

    /// Removes the temporary name of an interrupted revert. The lock is held: nobody is at it.
    fn clean(&mut self) -> Result<()> {
        let Some(pending) = self.database.pending()? else { return Ok(()) };
        let scan = self.transaction(|store| store.scan(Aim::Look, Leave::Nothing))?;
        let directories: Vec<Vec<u8>> = scan.directories.into_keys().collect();
        revert::sweep_temporary(&self.root, &directories, &pending.temporary);
        Ok(())
    }

    /// Directories of ringfence itself, device and inode.
    fn hidden(&self) -> Vec<(u64, u64)> {
        let hidden = [Some(self.database.directory.clone()), place::state().ok()];
        let hidden = hidden.into_iter().flatten().filter_map(|path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.dev(), found.ino()))
        });
        hidden.collect()
    }

    /// Opens up what a revert to a snapshot is about and its owner closed.
    fn open_up(
        &self,
        to: &Snapshot,
        unreadable: &[PathBuf],
        select: &Select,
    ) -> Result<closed::Closed> {
        let failed = |call| move |error| SessionError::call(call, &self.workspace, error);
        let device = beneath::stat(&self.root, b"").map_err(failed("statx"))?.stamp.device;
        let mut chosen = unreadable.to_vec();
        // Or the way to what is chosen.
        let way = |path: &Path| select.only.iter().any(|only| only.starts_with(path));
        chosen.retain(|path| select.takes(path) || way(path));
        let again = rustix::io::fcntl_dupfd_cloexec(&self.root, 0).map_err(failed("fcntl"))?;
        closed::Closed::open((&self.root, again), device, &chosen, |path| {
            self.entry(to, &beneath::shown(path))
        })
    }

    fn scan(&mut self, aim: Aim, leave: Leave) -> Result<Scan> {
        self.scan_opened(aim, leave, HashMap::new())
    }

    fn scan_opened(
        &mut self,
        aim: Aim,
        leave: Leave,
        closed: HashMap<Vec<u8>, u32>,
    ) -> Result<Scan> {
        let scanner = Scanner {
            closed,
            hidden: self.hidden(),
            database: &mut self.database,
            root: &self.root,
            path: &self.workspace,
            aim,
            leave,
            rules: ignored::Rules::default(),
            scan: Scan::default(),
            buffer: Vec::new(),
            most: self.options.most.filter(|_| aim != Aim::Look),
            names: 0,
            taken: 0,
        };
        scanner.run()
    }
}
