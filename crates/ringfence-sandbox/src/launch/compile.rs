//! From a plan to its image: the very calls that carry it out.

use super::assemble::assemble;
use super::brief::Brief;
use super::cache;
use super::capture;
use super::confine;
use super::environment::Environment;
use super::failure::{MAKE_NETWORK, MAKE_PRIVATE};
use super::script::{self, Arg, CWD, Note, Script};
use super::skeleton::Skeletons;
use super::view;
use crate::plan::{LimitStep, MountOp, MountStep, Plan, Tier};
use crate::state;
use ringfence_net::capture::Calls;
use ringfence_policy::NetworkMode;
use ringfence_start::image::{self, Header, Image, Patch, Span, register, special};
use ringfence_start::{Sysno, flags};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What only a launcher with libc can do, by number.
pub(super) mod assistance {
    /// Joins the control groups of version 1.
    pub const GROUPS: u64 = 0;
    /// Captures the network.
    pub const CAPTURE: u64 = 1;
    /// From here on: writes a file of the session's own, by its content's number.
    pub const DATA: u64 = 16;
}

/// What an image is made of beside the plan.
#[derive(Default)]
pub(super) struct Extras {
    /// The command's environment.
    pub environment: Environment,
    /// Somebody waits to be told that the command executes.
    pub announced: bool,
    /// The launcher keeps the plan when all is built.
    pub kept: bool,
    /// There are control groups of version 1 to join.
    pub groups: bool,
    /// The network is captured without help: the kernel is known to have all that it takes.
    pub captured: bool,
    /// What overlays of exact libraries are made of.
    pub skeletons: Skeletons,
}

/// What an image needs to be used again.
pub(super) struct Filed<'a> {
    pub key: &'a [u8],
    pub inputs: &'a crate::inputs::Inputs,
    /// The command's words.
    pub words: &'a [OsString],
    /// Directories whose change times are noted.
    pub notes: &'a [PathBuf],
    /// What the user is told before the command runs.
    pub announce: &'a str,
    /// What a launcher needs whose command ends soon.
    pub brief: Option<&'a Brief>,
    pub extra: &'a [u8],
}

/// A finished image.
pub(super) struct Compiled {
    pub(super) bytes: Vec<u8>,
    pub build: Vec<Note>,
    pub confine: Vec<Note>,
}

impl Compiled {
    /// To be carried out now. The bytes live as long as the process.
    pub fn image(&self) -> Option<Image> {
        let words = self.bytes.chunks_exact(8);
        let words: Vec<u64> =
            words.map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect();
        Image::of(words.leak())
    }
}

/// Stands in texts for what is different at each start.
const MARKS: [(&[u8], u32); 2] =
    [(state::SESSION_MARK.as_bytes(), image::SESSION), (state::PID_MARK.as_bytes(), image::PID)];

struct Personal {
    patches: Vec<Patch>,
}

/// The process tier's directory: its path in the data, and what was made in it.
struct Own {
    path: Span,
    made: Vec<u8>,
}

impl Personal {
    /// A string in the data in which marks are room for numbers: where, and how long.
    fn text(&mut self, script: &mut Script, text: &[u8]) -> Span {
        let mut made = Vec::with_capacity(text.len());
        let mut places = Vec::new();
        let mut rest = text;
        'text: while let Some(first) = rest.first() {
            for (mark, what) in MARKS {
                if let Some(after) = rest.strip_prefix(mark) {
                    let digits = if what == image::SESSION { 8 } else { 10 };
                    places.push((made.len() as u32, what));
                    made.extend(std::iter::repeat_n(b'0', digits));
                    rest = after;
                    continue 'text;
                }
            }
            made.push(*first);
            rest = &rest[1..];
        }
        made.push(0);
        let at = if places.is_empty() {
            script.text_at(&made[..made.len() - 1])
        } else {
            let at = script.data.len() as u32;
            script.data.extend_from_slice(&made);
            at
        };
        self.patches.extend(places.into_iter().map(|(place, what)| Patch { at: at + place, what }));
        Span { at, length: made.len() as u32 - 1 }
    }
}

/// A plan's steps, of which its images are made: the one that is carried out now, and the one that is kept.
pub(super) struct Steps {
    script: Script,
    header: Header,
    own: Option<Own>,
    /// The launcher keeps the plan when all is built.
    kept: bool,
}

/// Compiles a plan.
pub(super) fn steps(plan: &Plan, extras: &Extras) -> Steps {
    let mut script = Script::with_room();
    // Offset 0 is the empty string.
    script.text_at(b"");
    let mut personal = Personal { patches: Vec::new() };
    let private = state::private_template(plan);
    let own = write_build(&mut script, plan, extras, &mut personal, private.as_deref());
    confine::write_confinement(&mut script, plan);
    let workdir = script.text_at(plan.workdir.as_os_str().as_bytes());
    let mut header = Header {
        magic: image::MAGIC,
        namespaces: super::namespaces(plan).bits(),
        flags: if plan.tier == Tier::Process { image::PROCESS_TIER } else { 0 }
            | if extras.announced { image::ANNOUNCED } else { 0 }
            | if passing(plan) { image::PASSING } else { 0 }
            | if may_be_job(plan) { image::JOB } else { 0 },
        workdir: Span { at: workdir, length: plan.workdir.as_os_str().len() as u32 },
        ..Header::default()
    };
    let kept: Vec<u8> = extras.environment.kept.iter().map(|kept| u8::from(*kept)).collect();
    header.kept = span(&mut script, &kept);
    // One after the other, which a text of its own for each would not be.
    let set = script.data.len() as u32;
    for entry in &extras.environment.set {
        let mut own = Script::default();
        let mut places = Personal { patches: Vec::new() };
        places.text(&mut own, entry);
        let at = script.data.len() as u32;
        script.data.extend_from_slice(&own.data);
        let moved = |patch: Patch| Patch { at: patch.at + at, ..patch };
        personal.patches.extend(places.patches.into_iter().map(moved));
    }
    header.set = Span { at: set, length: script.data.len() as u32 - set };
    let patches: Vec<u8> = personal
        .patches
        .iter()
        .flat_map(|patch| [patch.at.to_ne_bytes(), patch.what.to_ne_bytes()].concat())
        .collect();
    let at = script.bytes(&patches);
    header.patches = Span { at, length: personal.patches.len() as u32 };
    script.data.push(0);
    Steps { script, header, own, kept: extras.kept }
}

impl Steps {
    /// To be carried out now. The notes are its.
    pub fn compiled(&mut self) -> Compiled {
        let awaited = if self.kept { image::AWAITED } else { 0 };
        let header = Header { flags: self.header.flags | awaited, ..self.header };
        let bytes = assemble(header, &self.script, &cache::Stamps::default(), &[]);
        let notes = |steps: &mut script::Steps| std::mem::take(&mut steps.notes);
        let (build, confine) = (&mut self.script.build, &mut self.script.confine);
        Compiled { bytes, build: notes(build), confine: notes(confine) }
    }

    /// The image with what it takes to be used again, for the cache.
    pub fn filed(mut self, plan: &Plan, filed: &Filed<'_>) -> Vec<u8> {
        let (mut header, script) = (self.header, &mut self.script);
        header.key = span(script, filed.key);
        header.announce = span(script, filed.announce.as_bytes());
        header.notes = list(script, filed.notes.iter().map(PathBuf::as_path));
        header.tops = list(script, plan.guarded_trees.iter().map(|tree| &*tree.tree));
        if let Some(brief) = filed.brief.filter(|_| plan.private_files.is_empty()) {
            header.flags |= image::BRIEF | if brief.recorded { image::RECORDED } else { 0 };
            header.runs = span(script, &brief.runs);
            header.trees = span(script, &brief.trees);
            header.sessions = span(script, brief.sessions.as_os_str().as_bytes());
            if let Some(Own { path, made }) = self.own {
                header.private = path;
                header.made = span(script, &made);
            }
        }
        // What is said before the command runs would be said twice where a later one does not hold.
        let later = own_network(plan) && filed.announce.is_empty();
        let stamps = cache::stamps(script, filed.inputs, filed.words, later);
        assemble(header, script, &stamps, filed.extra)
    }
}

/// Paths, each with a zero byte behind it.
fn list<'p>(script: &mut Script, paths: impl Iterator<Item = &'p Path>) -> Span {
    let bytes = paths.flat_map(|path| path.as_os_str().as_bytes().iter().copied().chain([0]));
    span(script, &bytes.collect::<Vec<u8>>())
}

fn span(script: &mut Script, bytes: &[u8]) -> Span {
    let at = script.bytes(bytes);
    // Strings in the data may be looked at from anywhere in it.
    script.data.push(0);
    Span { at, length: bytes.len() as u32 }
}

/// Whether the command may be a job of its own. In the process tier the launcher's group has a number inside. By such a
/// job's stops nobody can tell the user's, by which alone the time of a limited run stands still. And who asks about
/// calls has the terminal for the launcher.
fn may_be_job(plan: &Plan) -> bool {
    let asks = plan.allowed_calls.as_ref().is_some_and(crate::ask::asks);
    plan.tier == Tier::Namespace && super::timeout(plan).is_none() && !asks
}

/// Whether nothing of the view is missed when it goes by and by. The directories of an overlay are another one's at
/// once, perhaps: the kernel has them used by one at a time. And a file system that is unmounted after the run is
/// written out by who lets go of it last: that of the system's directories and the home stays, others may be pulled out.
fn passing(plan: &Plan) -> bool {
    let device = |path: &Path| path.metadata().ok().map(|data| data.dev());
    let home = ringfence_sys::identity::home();
    let system = ["/", "/usr", "/var", "/opt"].map(Path::new);
    let stay: Vec<u64> = system.into_iter().chain(home.as_deref()).filter_map(device).collect();
    let stays = |path: &Path| device(path).is_none_or(|device| stay.contains(&device));
    let lasts = |step: &MountStep| match &step.op {
        MountOp::Overlay { .. } | MountOp::NamedHome { apart: Some(_), .. } => true,
        MountOp::HostRoot { .. } => true,
        // Devices of the minimal set lie in the kernel's own file system.
        MountOp::Bind { devices: false, .. } => !stays(&step.path),
        MountOp::NamedHome { from, apart: None } => !stays(from),
        _ => false,
    };
    plan.tier != Tier::Process && !plan.mounts.iter().any(lasts)
}

/// Whether a network namespace is made.
fn own_network(plan: &Plan) -> bool {
    plan.tier != Tier::Process && plan.network != NetworkMode::Host
}

/// What the child does before it looks for the command.
fn write_build(
    script: &mut Script,
    plan: &Plan,
    extras: &Extras,
    personal: &mut Personal,
    private: Option<&Path>,
) -> Option<Own> {
    const PR_SET_DUMPABLE: u32 = 4;
    const PR_SET_NAME: u32 = 15;
    const PR_SET_CHILD_SUBREAPER: u32 = 36;
    const SIGKILL: u32 = 9;
    let process = plan.tier == Tier::Process;
    if process {
        // Its directory must go when the launcher dies.
        write_patience(script);
    } else {
        // Nothing outlives the launcher before the command runs: just die with it.
        script.note(ASK_FOR_END, None);
        script.call(Sysno::prctl, &[PR_SET_PDEATHSIG.into(), SIGKILL.into()]);
    }
    script.step(special::LEAVE_IF_ORPHANED, &[]);
    let name = script.text(c"ringfence-init");
    script.call(Sysno::prctl, &[PR_SET_NAME.into(), name]);
    script.mark(c"child");
    if extras.groups {
        script.note("join its control groups", None);
        script.step(special::ASSIST, &[assistance::GROUPS.into()]);
    }
    // Before there is a second process, which has them as well then.
    for limit in &plan.limits {
        if let LimitStep::Processors { count } = limit {
            script.note("restrict the processors", None);
            script.step(special::PROCESSORS, &[(*count).into()]);
        }
    }
    if let Some(landlock) = &plan.landlock {
        confine::write_new_ruleset(script, landlock);
    }
    script.note(if own_network(plan) { MAKE_NETWORK } else { "make a process" }, None);
    script.step(special::COMMAND_START, &[u32::from(own_network(plan)).into()]);
    script.mark(c"network-started");
    // The second process needs no name for its user before it executes.
    if plan.namespaces.iter().any(|name| name == "user") {
        write_identity(script, plan.user);
    }
    script.mark(c"identity");
    let (mut own, mut left) = (None, None);
    if let Some(private) = private {
        script.note("adopt orphans", None);
        script.call(Sysno::prctl, &[PR_SET_CHILD_SUBREAPER.into(), 1_u32.into()]);
        let (directory, made) = write_private(script, plan, personal, private);
        own = Some(directory);
        left = Some(Own { path: personal.text(script, private.as_os_str().as_bytes()), made });
    }
    if !process {
        view::write(script, plan, &extras.skeletons);
    }
    script.mark(c"view");
    if let Some(landlock) = &plan.landlock {
        confine::write_rules(script, landlock, own, plan.machine.is_some());
    }
    if let Some(own) = own {
        script.close(own);
    }
    if own_network(plan) {
        script.note(MAKE_NETWORK, None);
        script.step(special::NETWORK_ENTER, &[]);
    }
    if let Some(wanted) = &plan.capture {
        script.note("capture the network", None);
        if extras.captured {
            capture::write(script, &Calls::of(wanted));
        } else {
            script.step(special::ASSIST, &[assistance::CAPTURE.into()]);
        }
    }
    script.mark(c"network");
    script.note("hide its memory", None);
    script.call(Sysno::prctl, &[PR_SET_DUMPABLE.into(), 0_u32.into()]);
    script.mark(c"filter");
    if !process {
        write_patience(script);
        script.note("let go of the host's tree", None);
        script.step(special::ALL_BUILT, &[]);
    }
    left
}

const PR_SET_PDEATHSIG: u32 = 1;
const ASK_FOR_END: &str = "ask for its end";

/// From here on the warden ends the sandbox in order when the launcher dies, which is a signal that waits.
fn write_patience(script: &mut Script) {
    const SIG_SETMASK: u32 = 2;
    script.note(ASK_FOR_END, None);
    let all = Arg::Data(script.constant(&[0xff; 8]));
    script.call(Sysno::rt_sigprocmask, &[SIG_SETMASK.into(), all, 0_u32.into(), 8_u32.into()]);
    let death = ringfence_start::trace::PARENT_DEATH as u32;
    script.call(Sysno::prctl, &[PR_SET_PDEATHSIG.into(), death.into()]);
}

/// Maps the user and the group to themselves, and nobody else: inside, files of others belong
/// to `nobody`. Written by the child itself, which spares a round trip with the launcher.
fn write_identity(script: &mut Script, (user, group): (u32, u32)) {
    const O_WRONLY_CLOEXEC: u32 = 0o1 | 0o2_000_000;
    script.note(super::failure::MAP_IDENTITY, None);
    let maps = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ];
    for (path, text) in maps {
        let path = script.path(Path::new(path));
        let file = script.open(Sysno::openat, &[CWD, path, O_WRONLY_CLOEXEC.into()]);
        let at = Arg::Data(script.text_at(text.as_bytes()));
        script.call(Sysno::write, &[Arg::Register(file), at, text.len().into()]);
        script.close(file);
    }
}

/// Makes the process tier's directory (`home`, `tmp`), with links to what home shows: below one
/// of the user's own in the directory for temporary files. It stays open. Also returns what is in it, as
/// an image has it ([`Header::made`]).
fn write_private(
    script: &mut Script,
    plan: &Plan,
    personal: &mut Personal,
    private: &Path,
) -> (u8, Vec<u8>) {
    const EEXIST: u8 = 17;
    const ENOENT: u8 = 2;
    const PATH_DIRECTORY_NOFOLLOW: u32 =
        0o10_000_000 | flags::DIRECTORY | flags::NO_FOLLOW | 0o2_000_000;
    /// Steps of an attempt.
    const STEPS: u8 = 5;
    let parent = private.parent().unwrap_or(Path::new("/"));
    script.note(MAKE_PRIVATE, Some(parent));
    let name = private.file_name().unwrap_or_default();
    let name = Arg::Data(personal.text(script, name.as_bytes()).at);
    let at = script.path(parent);
    let above = script.register();
    // The last sandbox that ends takes the parent with it, perhaps right now.
    for attempt in 0..3 {
        let last = attempt == 2;
        script.call(Sysno::mkdirat, &[CWD, at, 0o700_u32.into()]).tolerated[0] = EEXIST;
        let op = script.call(Sysno::openat, &[CWD, at, PATH_DIRECTORY_NOFOLLOW.into()]);
        op.result = above;
        if !last {
            op.tolerated[0] = ENOENT;
            op.otherwise = u32::from(STEPS - 2);
        }
        // Nobody else's, before anything is made in it: a directory in another user's could be
        // exchanged, and a link leads anywhere.
        script.step(special::OWNED, &[Arg::Register(above)]);
        let op = script.call(Sysno::mkdirat, &[Arg::Register(above), name, 0o700_u32.into()]);
        if !last {
            op.tolerated[0] = ENOENT;
            op.then = STEPS * (2 - attempt);
            script.call(Sysno::close, &[Arg::Register(above)]);
        }
    }
    let open = [Arg::Register(above), name, PATH_DIRECTORY_NOFOLLOW.into()];
    let own = script.open(Sysno::openat, &open);
    script.close(above);
    script.step(special::OWNED, &[Arg::Register(own)]);
    let directory = Arg::Register(own);
    let mut links = Vec::new();
    let mut made: Vec<PathBuf> = Vec::new();
    let mut make = |script: &mut Script, path: &Path| {
        if !made.iter().any(|known| known == path) {
            let name = script.path(path);
            script.call(Sysno::mkdirat, &[directory, name, 0o755_u32.into()]).tolerated[0] = EEXIST;
            made.push(path.to_owned());
        }
    };
    make(script, Path::new("tmp"));
    make(script, Path::new("home"));
    for (name, target) in &plan.home_links {
        let link = Path::new("home").join(name);
        let mut parents: Vec<&Path> = link.ancestors().skip(1).collect();
        parents.pop();
        for parent in parents.into_iter().rev() {
            make(script, parent);
        }
        let (target, name) = (script.path(target), script.path(&link));
        script.call(Sysno::symlinkat, &[target, directory, name]);
        links.push(link);
    }
    for (name, content) in &plan.private_files {
        // O_WRONLY, O_CREAT, O_EXCL, O_CLOEXEC
        const NEW: u32 = 0o1 | 0o100 | 0o200 | 0o2_000_000;
        script.note("put the session's certificates at", Some(name));
        let name = script.path(name);
        let new = [directory, name, NEW.into(), 0o444_u32.into()];
        let file = script.open(Sysno::openat, &new);
        let what = assistance::DATA + *content as u64;
        script.step(special::ASSIST, &[what.into(), Arg::Register(file)]);
        script.close(file);
    }
    let listed = |mark: u8, path: &PathBuf| [&[mark], path.as_os_str().as_bytes(), &[0]].concat();
    let links = links.iter().map(|link| listed(b'-', link));
    (own, links.chain(made.iter().rev().map(|made| listed(b'/', made))).flatten().collect())
}

/// Registers that steps use must not be those with a meaning.
const _: () = assert!(register::FREE > register::WORKDIR);
