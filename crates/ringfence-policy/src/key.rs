//! The keys of a profile file: the one table that the parser, merging, the writer and the
//! JSON Schema read.

/// A key of a profile file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // Each is described in `KEYS`.
pub enum Key {
    Description,
    Extends,
    Requires,
    Features,
    Conflicts,
    When,
    Programs,
    Caveats,
    Dangers,
    Arguments,
    Home,
    Tier,
    AllowDegraded,
    Overlay,
    Libs,
    Gateway,
    Snapshot,
    Read,
    Write,
    State,
    Deny,
    Protect,
    Strict,
    Judged,
    Private,
    GitSettings,
    Mode,
    AllowHost,
    DenyHost,
    Publish,
    Http,
    Inject,
    Sockets,
    Registries,
    DbusTalk,
    DbusOwn,
    DbusSee,
    DbusCall,
    DbusPortals,
    Pass,
    Set,
    Hide,
    Clean,
    Memory,
    Pids,
    Cpus,
    OpenFiles,
    Disk,
    Timeout,
    Before,
    After,
    CallMode,
    CallAllow,
    CallOtherwise,
    Trace,
}

/// What kind of value a key takes, which also says how two values merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A text; the later one counts.
    Text,
    /// A number, or a text that holds one with its unit; the later one counts.
    Quantity,
    /// True or false; the later one counts.
    Flag,
    /// A list that grants: a later one adds, an empty one withdraws all that came before.
    Grants,
    /// A list that refuses or arranges: a later one adds, an empty one adds nothing.
    Adds,
    /// Names with values; the later value of a name counts.
    Pairs,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct KeyInfo {
    /// The key.
    pub key: Key,
    /// The table it stands in; empty for the top level.
    pub table: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// What it takes.
    pub shape: Shape,
    /// The only values it takes, where they are few.
    pub values: &'static [&'static str],
    /// What it means, for the schema and for people.
    pub doc: &'static str,
}

/// The tables of a profile file.
pub const TABLES: [(&str, &str); 7] = [
    (
        "filesystem",
        "What is seen and written. Paths: `~`, `$VAR`, `.` for the directory of the \
        run, `PATH?` for one that may be missing.",
    ),
    (
        "network",
        "What is reached. Hosts: a name, `*.name`, an address, a range, `[v6]`, \
        `localhost:PORT`; then ports, 80 and 443 without.",
    ),
    ("dbus", "Names of the session bus, `org.example.App` or `org.example.*`; by xdg-dbus-proxy."),
    ("environment", "Which variables are passed on."),
    ("limits", "What a run may use; a limit left out is the host's own."),
    (
        "hooks",
        "Shell commands that run outside, before and after; only in a profile of the user's own.",
    ),
    ("syscalls", "Which system calls the command may make, beyond what is refused to all."),
];

const fn row(
    key: Key,
    table: &'static str,
    name: &'static str,
    shape: Shape,
    doc: &'static str,
) -> KeyInfo {
    KeyInfo { key, table, name, shape, values: &[], doc }
}

const fn choice(
    key: Key,
    table: &'static str,
    name: &'static str,
    values: &'static [&'static str],
    doc: &'static str,
) -> KeyInfo {
    KeyInfo { key, table, name, shape: Shape::Text, values, doc }
}

/// All keys, in the order of [`Key`], which is also the order in which files are written.
pub const KEYS: [KeyInfo; 55] = {
    use Key::*;
    use Shape::*;
    const FS: &str = "filesystem";
    const NET: &str = "network";
    const BUS: &str = "dbus";
    const ENV: &str = "environment";
    const LIM: &str = "limits";
    const HOOKS: &str = "hooks";
    const CALLS: &str = "syscalls";
    [
        row(Description, "", "description", Text, "One sentence on what the profile is for."),
        row(Extends, "", "extends", Adds, "Profiles that this one builds on, names or files."),
        row(Requires, "", "requires", Adds, "Features that this one cannot do without."),
        row(Features, "", "features", Adds, "Features to add, names or files."),
        row(Conflicts, "", "conflicts", Adds, "Features that cannot be used with this one."),
        row(
            When,
            "",
            "when",
            Adds,
            "Counts only where all of this is there: commands, paths, `$VAR` for a variable that is \
            set; `a|b` for either, `!a` for what must not be there.",
        ),
        row(Programs, "", "programs", Adds, "Commands that use this profile without being told."),
        row(Caveats, "", "caveats", Adds, "What one should know before using it."),
        row(Dangers, "", "dangers", Adds, "What it opens; said before each run."),
        choice(
            Arguments,
            "",
            "arguments",
            &["none", "files", "read", "write", "beside"],
            "Whether files and directories that the command's arguments name are granted.",
        ),
        row(
            Home,
            "",
            "home",
            Text,
            "What HOME is inside: `private`, `host`, or the name of a kept one.",
        ),
        choice(
            Tier,
            "",
            "tier",
            &["auto", "process", "namespace", "vm"],
            "Which mechanism carries the policy out.",
        ),
        row(AllowDegraded, "", "allow_degraded", Adds, "Layers that may be missing on a host."),
        choice(
            Overlay,
            "",
            "overlay",
            &["ask", "commit", "discard", "keep"],
            "Keep writes apart, and what to do with them at the end.",
        ),
        choice(Libs, "", "libs", &["all", "exact"], "Which libraries are visible."),
        row(
            Gateway,
            "",
            "gateway",
            Flag,
            "The command may make, compare and revert snapshots of its writable trees.",
        ),
        choice(
            Snapshot,
            "",
            "snapshot",
            &["auto", "always", "never"],
            "Keep the state of the directory before the run: where it takes but a moment, always, \
            or never.",
        ),
        row(Read, FS, "read", Grants, "Seen, read and executed."),
        row(Write, FS, "write", Grants, "Read and written."),
        row(
            State,
            FS,
            "state",
            Grants,
            "Read and written, and made for the user alone when missing: a directory, or with \
            `={}` a file that holds `{}`, with `=` an empty one.",
        ),
        row(Deny, FS, "deny", Adds, "Neither seen nor touched, whatever else grants it."),
        row(Protect, FS, "protect", Adds, "Never written, inside a writable tree too."),
        row(
            Strict,
            FS,
            "strict",
            Flag,
            "Refuse the call that would make a protected name, instead of taking it away.",
        ),
        row(
            Judged,
            FS,
            "judged",
            Adds,
            "Judged by content after the run: in settings (JSON), what runs or trusts something \
            keeps its value; in `skills`, the agent's own go without a word.",
        ),
        row(
            Private,
            FS,
            "private",
            Adds,
            "Directories in a writable tree in whose place the command has empty ones, in memory; \
            the process tier puts back what was there.",
        ),
        row(
            GitSettings,
            FS,
            "git_settings",
            Flag,
            "Git's configuration in repositories may change; after the run what makes git run \
            something is what it was.",
        ),
        choice(
            Mode,
            NET,
            "mode",
            &["none", "filtered", "host"],
            "How much network there is; rules alone make it `filtered`.",
        ),
        row(AllowHost, NET, "allow", Grants, "Hosts that may be reached."),
        row(DenyHost, NET, "deny", Adds, "Hosts that may not, whatever else allows them."),
        row(
            Publish,
            NET,
            "publish",
            Grants,
            "Ports the host may connect in to: `[ADDR:]PORT[:PORT]`.",
        ),
        row(Http, NET, "http", Grants, "The only requests to a host: `METHOD[,METHOD] HOST/PATH`."),
        row(Inject, NET, "inject", Grants, "Headers that the proxy adds: `HOST HEADER=SOURCE`."),
        row(
            Sockets,
            NET,
            "sockets",
            Grants,
            "Unix sockets of the host that may be connected to: paths, and services by variables (x11:$DISPLAY).",
        ),
        row(
            Registries,
            NET,
            "registries",
            Grants,
            "Package managers whose configured registries may be reached.",
        ),
        row(DbusTalk, BUS, "talk", Grants, "Names that may be called and that answer."),
        row(DbusOwn, BUS, "own", Grants, "Names that may be owned."),
        row(DbusSee, BUS, "see", Grants, "Names that are seen to be there."),
        row(
            DbusCall,
            BUS,
            "call",
            Grants,
            "The only calls to a name: `NAME=INTERFACE.METHOD@/PATH`.",
        ),
        row(
            DbusPortals,
            BUS,
            "portals",
            Flag,
            "Desktop portals: the user is asked for each thing.",
        ),
        row(Pass, ENV, "pass", Grants, "Names passed on although they look like credentials."),
        row(Set, ENV, "set", Pairs, "Names with the value they have inside."),
        row(Hide, ENV, "hide", Adds, "Patterns of names that are hidden unless passed."),
        row(Clean, ENV, "clean", Flag, "Start from an empty environment."),
        row(Memory, LIM, "memory", Quantity, "Memory of the whole sandbox, as in `4GiB`."),
        row(Pids, LIM, "pids", Quantity, "Processes and threads."),
        row(Cpus, LIM, "cpus", Quantity, "Processors, as in `1.5`."),
        row(OpenFiles, LIM, "open_files", Quantity, "Open files of each process."),
        row(Disk, LIM, "disk", Quantity, "What private directories may hold, as in `1GiB`."),
        row(
            Timeout,
            LIM,
            "timeout",
            Quantity,
            "Time after which everything is ended, as in `1h30m`.",
        ),
        row(Before, HOOKS, "before", Adds, "Run outside by `sh -c` before the command."),
        row(After, HOOKS, "after", Adds, "Run outside by `sh -c` when nothing lives inside."),
        choice(
            CallMode,
            CALLS,
            "mode",
            &["default", "learned", "ask"],
            "Whether all calls are allowed but those that no program needs, only those listed, or \
            those listed and what the user allows when asked.",
        ),
        row(
            CallAllow,
            CALLS,
            "allow",
            Grants,
            "Calls that may be made when the mode is `learned` or `ask`.",
        ),
        choice(
            CallOtherwise,
            CALLS,
            "otherwise",
            &["refuse", "kill"],
            "What becomes of others: refused with EPERM, or who makes one is killed.",
        ),
        row(
            Trace,
            CALLS,
            "trace",
            Flag,
            "What runs inside may trace what runs inside: debuggers, strace, leak checkers.",
        ),
    ]
};

impl Key {
    /// The row of this key.
    pub fn info(self) -> &'static KeyInfo {
        &KEYS[self as usize]
    }

    /// The key as messages name it: `filesystem.read`.
    pub fn path(self) -> String {
        let KeyInfo { table, name, .. } = self.info();
        if table.is_empty() { (*name).to_owned() } else { format!("{table}.{name}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_keys() {
        for (index, info) in KEYS.iter().enumerate() {
            assert_eq!(info.key as usize, index, "{}", info.name);
            assert!(info.table.is_empty() || TABLES.iter().any(|(name, _)| *name == info.table));
        }
    }
}
